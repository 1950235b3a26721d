"""Jobs on a Ray cluster: the one that `RAY_ADDRESS` names, or one that is started here. Knows nothing of a job's work.

Every worker must see the run's folder at the same path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ray

from experiments.sweep.store import RunStore
from experiments.sweep.work import Ended, Job, died, work

RETRIES = 2  # of a job whose worker died


def run_on_ray(folder: Path, jobs: Sequence[Job], workers: int) -> Iterator[Ended]:
    """Do the jobs as Ray tasks; yields units as they end.

    A job takes one CPU, and one GPU for each CUDA device that it names. `workers` is the number of CPUs of a cluster
    that is started here; an existing one decides for itself.
    """
    existing = os.environ.get("RAY_ADDRESS")
    started = not ray.is_initialized()
    if started:
        ray.init(address=existing, num_cpus=None if existing else workers, log_to_driver=False, include_dashboard=False)
    try:
        running = {_task(job).remote(str(folder.resolve()), job): job for job in jobs}
        while running:
            (done,), _ = ray.wait(list(running), num_returns=1)
            job = running.pop(done)
            try:
                yield from ray.get(done)
            except (ray.exceptions.RayTaskError, ray.exceptions.RayError) as error:
                yield from died(RunStore.open(folder), job, str(error).strip().splitlines()[-1])
    finally:
        if started:
            ray.shutdown()


def _task(job: Job) -> Any:
    devices = {device for device in (job.device, job.scorer_device) if device and device.startswith("cuda")}
    return ray.remote(num_cpus=1, num_gpus=len(devices), max_retries=RETRIES)(_work)


def _work(folder: str, job: Job) -> list[Ended]:
    return work(Path(folder), job)
