"""Who does the work of a sweep: processes of this machine, or a Ray cluster. Each yields what ended, as it ends."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from experiments.sweep.work import Ended, Job

Executor = Callable[[Path, Sequence[Job], int], Iterator[Ended]]
"""`(run folder, jobs, workers)`; what a job's process died of is an `Ended` like any other failure."""

EXECUTORS = ("local", "ray")


def executor_of(name: str) -> Executor:
    """The executor of that name; raises `ValueError` where a package is missing."""
    if name == "local":
        from experiments.sweep.executors.local import run_locally

        return run_locally
    try:
        from experiments.sweep.executors.on_ray import run_on_ray
    except ModuleNotFoundError as error:
        raise ValueError(
            f"executor: 'ray' needs the package {error.name!r}; install it with: pip install 'chunksearch[ray]'"
        ) from error
    return run_on_ray
