"""Passes of a sharded model, in which torch calls collectives.

The collectives of FSDP and of tensor parallelism have no header: if one rank raises, the others
wait for it. Inside :func:`guarded` every such collective begins with the header of
:class:`~neuroinit.distributed.ranks.Ranks`, so that all ranks raise the error at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from neuroinit.distributed.dtensor import is_sharded_type
from neuroinit.distributed.ranks import Ranks

COLLECTIVES = ("c10d", "_c10d_functional", "_dtensor")
_WAITS = ("wait_tensor", "_wrap_tensor_autograd")  # without communication


def guarded(ranks: Ranks) -> AbstractContextManager[object]:
    """A context in which torch's collectives begin with a header; equal on all ranks."""
    return nullcontext() if ranks.alone else _Headers(ranks)


class _Headers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch
    """Exchanges a header before every collective that this thread calls."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.ranks = ranks

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        if any(is_sharded_type(kind) for kind in types):
            return NotImplemented  # DTensor first: it turns its operators into collectives
        if func.namespace in COLLECTIVES and func.overloadpacket.__name__ not in _WAITS:
            self.ranks.meet(f"pass {func}")
        return func(*args, **(kwargs or {}))
