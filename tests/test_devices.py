"""A device that is not there is one clear error, before any weights are read."""

import pytest
import torch

from engine.registry import load_engine
from scorers.registry import load_scorer
from search.devices import device_of


@pytest.mark.parametrize("load", [load_engine, load_scorer])
def test_cuda_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch, load: type) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="device: 'cuda' is not there; torch finds 0 CUDA devices"):
        load("builtin", device="cuda")


def test_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of(None) == torch.device("cpu")
    assert device_of("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match="'cuda:2' is not there; torch finds 2"):
        device_of("cuda:2")
    with pytest.raises(ValueError, match="device: 'gpu' is no torch device"):
        device_of("gpu")


def test_devices_that_hold_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="device: 'meta' cannot be used here; 'cpu' always works"):
        device_of("meta")
