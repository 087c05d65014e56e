"""Which statistics BatchNorm uses while a method evaluates a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

NORM_STATISTICS = ("batch", "running")


@contextmanager
def norm_statistics(model: nn.Module, kind: str) -> Iterator[None]:
    """Let BatchNorm use the statistics of the batch, or its running statistics.

    Sessions put a model in training mode, where BatchNorm uses the statistics of the batch. With
    ``"running"``, every BatchNorm and InstanceNorm module goes to eval mode when it is called in a
    session that is opened inside; the session restores the mode.

    Args:
        model: The user's module.
        kind: ``"batch"`` or ``"running"``.
    """
    with ExitStack() as stack:
        if kind == "running":
            for module in model.modules():
                if isinstance(module, _NormBase):
                    stack.callback(module.register_forward_pre_hook(_to_eval_mode).remove)
        yield


def _to_eval_mode(module: nn.Module, inputs: object) -> None:
    module.training = False
