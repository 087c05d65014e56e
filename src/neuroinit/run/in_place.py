"""Initializations in place, like ``torch.nn.init``: for whole models, in one line."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.methods.base import Initialization
from neuroinit.methods.classic import Kaiming, Orthogonal, TruncNormal, Xavier
from neuroinit.methods.fixup import FixUp
from neuroinit.methods.gradinit import GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio.method import NIO
from neuroinit.model.optimizers import OptimizerLike, rate_of
from neuroinit.model.problem import ComputeLoss, LossFunction
from neuroinit.run.loop import OnStep
from neuroinit.run.optimize import optimize
from neuroinit.run.result import Result

_OWN = ("model", "batches", "loss_fn", "method")  # arguments that have names of their own here
_OPTIONS = [name for name in inspect.signature(optimize).parameters if name not in _OWN]


def nio_(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    *,
    compute_loss: ComputeLoss | None = None,
    engine: str = "auto",
    microbatch: int | None = None,
    progress: bool = True,
    on_step: OnStep | None = None,
    memory_limit: int | None = None,
    autocast: torch.dtype | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 10,
    example: Tensor | Sequence[int] | None = None,
    optimizer: OptimizerLike | None = None,
    **fields: Any,
) -> Result:
    """Optimize the initialization of a model in place, like ``torch.nn.init``.

    The scaled parameters change, and nothing else; on any exception nothing does. Biases end near
    zero, at ``min_scale`` of what they are; keep those that you have set on purpose, such as an
    LSTM's for its forget gates, by ``exclude=("*bias*",)``.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`.
        loss_fn: ``loss_fn(output, target)``. Standardize the targets of a regression: the bound
            is taken from the loss.
        compute_loss: As for :func:`optimize`, as are ``engine``, ``microbatch``, ``progress``,
            ``on_step``, ``memory_limit``, ``autocast``, ``checkpoint``, ``checkpoint_every`` and
            ``example``.
        optimizer: What you will train with, or a function of parameters that makes it: the bound
            fits SGD's learning rate and momentum then. What that is worth is in
            ``docs/trainability.md``.
        **fields: Fields of :class:`NIO`, for example ``steps=40`` or ``gamma=2.0``.

    Returns:
        The result, already applied.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(4)]
        >>> len(nio_(model, batches, steps=3).history)
        3
    """
    options: dict[str, Any] = {
        "compute_loss": compute_loss,
        "engine": engine,
        "microbatch": microbatch,
        "progress": progress,
        "on_step": on_step,
        "memory_limit": memory_limit,
        "autocast": autocast,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "example": example,
    }
    if optimizer is not None:
        options["rate"] = rate_of(optimizer)
    return _learned("nio_", NIO, model, batches, loss_fn, {**options, **fields})


def gradinit_(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    **options: Any,
) -> Result:
    """GradInit in place.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`; ``S`` is two thirds of a batch.
        loss_fn: ``loss_fn(output, target)``.
        **options: Fields of :class:`GradInit`, and the other arguments of :func:`optimize`.

    Returns:
        The result, already applied.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> batches = [(torch.randn(24, 4), torch.randint(3, (24,))) for _ in range(4)]
        >>> len(gradinit_(nn.Linear(4, 3), batches, steps=3).history)
        3
    """
    return _learned("gradinit_", GradInit, model, batches, loss_fn, options)


def metainit_(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    **options: Any,
) -> Result:
    """MetaInit in place.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`, or :func:`random_batches`.
        loss_fn: ``loss_fn(output, target)``.
        **options: Fields of :class:`MetaInit`, and the other arguments of :func:`optimize`.

    Returns:
        The result, already applied.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        >>> from neuroinit.model.random_data import random_batches
        >>> len(metainit_(model, random_batches((16, 4), classes=3), steps=3).history)
        3
    """
    return _learned("metainit_", MetaInit, model, batches, loss_fn, options)


def lsuv_(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    loss_fn: LossFunction | None = None,
    **options: Any,
) -> Result:
    """LSUV in place: fresh orthonormal weights, then unit variance layer by layer.

    Args:
        model: Any module.
        batches: An iterable of inputs, or of ``(inputs, targets)``, whose targets are not looked
            at. One batch is enough.
        loss_fn: With a loss, the result has gradient statistics before and after.
        **options: Fields of :class:`LSUV`, and ``compute_loss`` and ``progress`` as for
            :func:`optimize`.

    Returns:
        The result, already applied.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> inputs = torch.randn(64, 4)
        >>> _ = lsuv_(model, [inputs])
        >>> 0.9 < model(inputs).var() < 1.1
        tensor(True)
    """
    result = _learned("lsuv_", LSUV, model, batches, loss_fn, options)
    _go_on()
    return result


def kaiming_(model: nn.Module, **fields: Any) -> Result:
    """Kaiming's start for a whole model; the fields are those of :class:`Kaiming`.

    Example:
        >>> model = nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 3))
        >>> _ = kaiming_(model)
        >>> deviation = model[0].weight.std().item()
        >>> round(deviation * 200**0.5, 1), model[0].bias.any().item()
        (1.0, False)
    """
    return _drawn("kaiming_", Kaiming, model, fields)


def xavier_(model: nn.Module, **fields: Any) -> Result:
    """Xavier's start for a whole model; the fields are those of :class:`Xavier`."""
    return _drawn("xavier_", Xavier, model, fields)


def orthogonal_(model: nn.Module, **fields: Any) -> Result:
    """An orthogonal start for a whole model; the fields are those of :class:`Orthogonal`."""
    return _drawn("orthogonal_", Orthogonal, model, fields)


def trunc_normal_(model: nn.Module, **fields: Any) -> Result:
    """A truncated normal start for a whole model; the fields are those of :class:`TruncNormal`."""
    return _drawn("trunc_normal_", TruncNormal, model, fields)


def fixup_(model: nn.Module, **fields: Any) -> Result:
    """FixUp's start for a residual network that was made for it, see :class:`FixUp`."""
    return _drawn("fixup_", FixUp, model, fields)


def _learned(
    name: str,
    kind: type[Initialization],
    model: nn.Module,
    batches: Iterable[Any] | None,
    loss_fn: LossFunction | None,
    options: dict[str, Any],
) -> Result:
    """Run a method on batches, and apply what it found."""
    passed = {key: value for key, value in options.items() if key in _OPTIONS}
    fields = {key: value for key, value in options.items() if key not in _OPTIONS}
    _check_fields(name, kind, fields)
    result = optimize(model, batches, loss_fn, kind(**fields), **passed)
    result.apply_(model)
    return result


def _drawn(
    name: str, kind: type[Initialization], model: nn.Module, fields: dict[str, Any]
) -> Result:
    """Draw a start, and apply it."""
    _check_fields(name, kind, fields)
    result = optimize(model, (), None, kind(**fields))
    result.apply_(model)
    _go_on()
    return result


def _go_on() -> None:
    """Take a number from the global generator, so that the next model is drawn differently."""
    torch.rand(())


def _check_fields(name: str, kind: type[Initialization], fields: dict[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(kind)]
    unknown = [field for field in fields if field not in known]
    if unknown:
        raise TypeError(
            f"`{unknown[0]}` is no argument of `{name}` and no field of `{kind.__name__}`. "
            f"The fields are: {', '.join(known)}."
        )
