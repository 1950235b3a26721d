"""What operations do, counted as they are dispatched. Knows tensors, no streams.

Attention may read all that is committed (law 9 allows it), and growing a buffer is amortised: both are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from search import state as search_state
from search.state import BranchCache


class Work(TorchDispatchMode):
    """Counts the elements that operations write, views and attention aside, and notes whose memory was overwritten.

    Attributes:
        elements: in the outputs of all operations.
        written: addresses of the storages that were changed in place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.written: set[int] = set()
        self._paused = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Tensor):
                self.written.add(value.untyped_storage().data_ptr())
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if not self._paused and not views:
            self.elements += sum(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        return out

    def aside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, uncounted."""

        def uncounted(*args: Any, **kwargs: Any) -> Any:
            self._paused += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._paused -= 1

        return uncounted

    def __enter__(self) -> Work:
        extend, grown = BranchCache.extend, search_state._grown

        def attending(cache: BranchCache, *args: Any, **kwargs: Any) -> search_state.Step:
            step = self.aside(extend)(cache, *args, **kwargs)
            return replace(step, attend=self.aside(step.attend))

        self._patches = [
            mock.patch.object(BranchCache, "extend", attending),
            mock.patch.object(search_state, "_grown", self.aside(grown)),  # amortised: test_branch_cache counts it
        ]
        for patch in self._patches:
            patch.start()
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for patch in self._patches:
            patch.stop()
