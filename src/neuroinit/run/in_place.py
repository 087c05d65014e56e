"""Methods that learn from batches, in place, like ``torch.nn.init``: ``nio_`` and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Unpack

import torch.nn.functional as F
from torch import nn

from neuroinit.common.batches import Batch
from neuroinit.common.process.signals import deferred
from neuroinit.methods.base import Initialization
from neuroinit.methods.gradinit import GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio import NIO
from neuroinit.model.arguments.optimizers import OptimizerLike, family_of, rate_of
from neuroinit.model.problem import LossFunction
from neuroinit.run import options as o
from neuroinit.run.drawn_in_place import advance_generator
from neuroinit.run.optimize import optimize
from neuroinit.run.optimize_verified import optimize_verified
from neuroinit.run.results.result import Result


@o.shows_options(o.NIOOptions, NIO, optimize)
def nio_(
    model: nn.Module,
    batches: Iterable[Batch] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    *,
    optimizer: OptimizerLike | None = None,
    verify: bool = True,
    **options: Unpack[o.NIOOptions],
) -> Result:
    """Optimize the initialization of a model in place.

    The scaled parameters change, and nothing else; on any exception nothing changes.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`.
        loss_fn: ``loss_fn(output, target)``. Standardize the targets of a regression:
            ``explodes`` and ``dead`` are thresholds relative to the loss at small weights.
        optimizer: The optimizer that you will train with, or a function of parameters that makes
            it. If its first step would be too long, all weights are shrunk. The result is checked,
            see ``verify``.
        verify: With an ``optimizer``, compare short trainings before the model is changed, at most
            60 steps together. They start from the model as it is, from the result, and from other
            scales: small residual branches (``SmallBranches``), scales with which the output of
            every layer has unit variance, or both; if the model learns nothing, also GPT-2's scales
            (``SmallBranches(std=0.02)``). If there are no other scales, half of the result is
            tried. The trainings are judged by the loss and by what they have learned about the
            inputs. The best one is applied, or nothing; ``result.verified`` says which.
        **options: Fields of :class:`NIO`, for example ``steps=40`` or ``gamma=2.0``, and options of
            :func:`optimize`, for example ``compute_loss=`` or ``engine=``.

    Returns:
        The result, already applied.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(4)]
        >>> len(nio_(model, batches, gamma=1.0, steps=3).history)
        3
    """
    if optimizer is not None:
        options["rate"], options["family"] = rate_of(optimizer), family_of(optimizer)
    if optimizer is None or batches is None or not verify:
        return _learn("nio_", NIO, model, batches, loss_fn, options)
    method, passed = o.method_and_options("nio_", NIO, options)
    with deferred():  # all ranks change their model, or none does
        result = optimize_verified(model, batches, loss_fn, method, optimizer, passed)
        result.apply_(model)
    return result


@o.shows_options(o.GradInitOptions, GradInit, optimize)
def gradinit_(
    model: nn.Module,
    batches: Iterable[Batch] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    **options: Unpack[o.GradInitOptions],
) -> Result:
    """GradInit in place.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`; ``S`` is two thirds of a batch.
        loss_fn: ``loss_fn(output, target)``.
        **options: Fields of :class:`GradInit`, and options of :func:`optimize`.

    Returns:
        The result, already applied.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> batches = [(torch.randn(24, 4), torch.randint(3, (24,))) for _ in range(4)]
        >>> len(gradinit_(nn.Linear(4, 3), batches, steps=3).history)
        3
    """
    return _learn("gradinit_", GradInit, model, batches, loss_fn, options)


@o.shows_options(o.MetaInitOptions, MetaInit, optimize)
def metainit_(
    model: nn.Module,
    batches: Iterable[Batch] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    **options: Unpack[o.MetaInitOptions],
) -> Result:
    """MetaInit in place.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`, or :func:`random_batches`.
        loss_fn: ``loss_fn(output, target)``.
        **options: Fields of :class:`MetaInit`, and options of :func:`optimize`.

    Returns:
        The result, already applied.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        >>> from neuroinit.model.arguments.random_data import random_batches
        >>> len(metainit_(model, random_batches((16, 4), classes=3), steps=3).history)
        3
    """
    return _learn("metainit_", MetaInit, model, batches, loss_fn, options)


@o.shows_options(o.LSUVOptions, LSUV, optimize)
def lsuv_(
    model: nn.Module,
    batches: Iterable[Batch] | None = None,
    loss_fn: LossFunction | None = None,
    **options: Unpack[o.LSUVOptions],
) -> Result:
    """LSUV in place: fresh orthonormal weights, then unit variance layer by layer.

    Args:
        model: Any module.
        batches: An iterable of inputs, or of ``(inputs, targets)``, whose targets are not used. One
            batch is enough.
        loss_fn: With a loss, the result has gradient statistics before and after.
        **options: Fields of :class:`LSUV`, and options of :func:`optimize`.

    Returns:
        The result, already applied.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> inputs = torch.randn(64, 4)
        >>> _ = lsuv_(model, [inputs])
        >>> 0.9 < model(inputs).var() < 1.1
        tensor(True)
    """
    result = _learn("lsuv_", LSUV, model, batches, loss_fn, options)
    advance_generator()
    return result


def _learn(
    name: str,
    kind: type[Initialization],
    model: nn.Module,
    batches: Iterable[Batch] | None,
    loss_fn: LossFunction | None,
    options: Mapping[str, object],
) -> Result:
    """Run a method on batches and apply its result."""
    method, passed = o.method_and_options(name, kind, options)
    with deferred():  # all ranks change their model, or none does
        result = optimize(model, batches, loss_fn, method, **passed)
        result.apply_(model)
    return result
