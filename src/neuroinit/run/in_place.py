"""Methods that learn from batches, in place, like ``torch.nn.init``: ``nio_`` and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Unpack

import torch.nn.functional as F
from torch import nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_instance
from neuroinit.common.errors import warn
from neuroinit.common.process.signals import deferred
from neuroinit.methods.base import Initialization
from neuroinit.methods.gradinit import GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio import NIO
from neuroinit.model.arguments.optimizers import (
    OptimizerLike,
    family_of,
    learning_rate_of,
    rate_fields,
)
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
    verify: bool | None = None,
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
            it, such as ``lambda p: torch.optim.SGD(p, lr=0.1)``. It sets ``rate`` and ``family``:
            if its first step would be too long, all weights are shrunk. The result is checked, see
            ``verify``.
        verify: Compare short trainings before the model is changed, at most 60 steps together;
            needs an ``optimizer`` and ``batches``. By default true if there is an ``optimizer``;
            with ``example=`` there is nothing to learn, and a warning says that the result is not
            verified. The trainings start from the model as it is, from the result, and from other
            scales: small residual branches (``SmallBranches``), scales with which the output of
            every layer has unit variance, or both; if the model learns nothing, also GPT-2's scales
            (``SmallBranches(std=0.02)``). If there are no other scales, half of the result is
            tried. The trainings are judged by the loss and by what they have learned about the
            inputs. The best one is applied if the model as it is diverges, learns nothing, or is
            clearly behind; ``result.verified`` says what was applied.
        **options: Fields of :class:`NIO`, for example ``steps=40`` or ``gamma=2.0``, and options of
            :func:`optimize`, for example ``compute_loss=``. ``engine`` and ``memory_limit`` are for
            rules with second derivatives, as with ``gamma=2.0``; the default has none.

    Returns:
        The result, already applied.

    Raises:
        TypeError: If an argument is not usable, or contradicts another.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(4)]
        >>> len(nio_(model, batches, gamma=1.0, steps=3).history)
        3
    """
    if verify is not None:
        check_instance("verify", verify, bool, "`True`, `False` or `None`")
    if optimizer is not None:
        o.check_not_both(options, ("rate", "family"))
        options = {**options, **rate_fields(optimizer)}
    if optimizer is None or batches is None or verify is False:
        _check_unverified(verify, optimizer, options.get("example"))
        return _learn("nio_", NIO, o.NIOOptions, model, batches, loss_fn, options)
    method, passed = o.method_and_options("nio_", NIO, o.NIOOptions, options)
    with deferred():  # all ranks change their model, or none does
        result = optimize_verified(model, batches, loss_fn, method, optimizer, passed)
        result.apply_(model)
    return result


@o.shows_options(o.GradInitOptions, GradInit, optimize)
def gradinit_(
    model: nn.Module,
    batches: Iterable[Batch] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    *,
    optimizer: OptimizerLike | None = None,
    **options: Unpack[o.GradInitOptions],
) -> Result:
    """GradInit in place.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`; ``S`` is two thirds of a batch.
        loss_fn: ``loss_fn(output, target)``.
        optimizer: The optimizer that you will train with, or a function of parameters that makes
            it. It sets ``family``, and ``eta`` to its learning rate unless you pass ``eta``.
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
    if optimizer is not None:
        o.check_not_both(options, ("family",))
        eta = learning_rate_of(optimizer) or GradInit.eta
        options = {"eta": eta, **options, "family": family_of(optimizer)}
    return _learn("gradinit_", GradInit, o.GradInitOptions, model, batches, loss_fn, options)


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
        >>> from neuroinit import random_batches
        >>> len(metainit_(model, random_batches((16, 4), classes=3), steps=3).history)
        3
    """
    return _learn("metainit_", MetaInit, o.MetaInitOptions, model, batches, loss_fn, options)


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
        **options: Fields of :class:`LSUV`, and options of :func:`optimize`. ``microbatch`` and
            ``targets`` are for the statistics, which need a loss.

    Returns:
        The result, already applied.

    Raises:
        TypeError: If an argument is not usable, or needs a loss and there is none.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> inputs = torch.randn(64, 4)
        >>> _ = lsuv_(model, [inputs])
        >>> 0.9 < model(inputs).var() < 1.1
        tensor(True)
    """
    if loss_fn is None and options.get("compute_loss") is None:
        _check_without_loss(options)
    result = _learn("lsuv_", LSUV, o.LSUVOptions, model, batches, loss_fn, options)
    advance_generator()
    return result


def _check_unverified(
    verify: bool | None, optimizer: OptimizerLike | None, example: object
) -> None:
    """Raise if verification is wanted; warn if it was to be expected."""
    if verify:
        missing = "an `optimizer`" if optimizer is None else "`batches`: random data teach nothing"
        raise TypeError(f"`verify = True` needs {missing}.")
    if verify is None and optimizer is not None and example is not None:
        warn(
            "The result is not verified by short trainings, because nothing can be learned from "
            "random labels. Pass `batches` in place of `example`, or `verify=False`."
        )


def _check_without_loss(options: o.LSUVOptions) -> None:
    """Raise for options of the statistics, which need a loss."""
    for name in ("microbatch", "targets"):
        if options.get(name) is not None:
            raise TypeError(
                f"`{name} = {options.get(name)!r}` is for the gradient statistics before and after,"
                " which need a loss. Pass `loss_fn` or `compute_loss`, or leave it out."
            )


def _learn(
    name: str,
    kind: type[Initialization],
    typed: type,
    model: nn.Module,
    batches: Iterable[Batch] | None,
    loss_fn: LossFunction | None,
    options: Mapping[str, object],
) -> Result:
    """Run a method on batches and apply its result."""
    method, passed = o.method_and_options(name, kind, typed, options)
    with deferred():  # all ranks change their model, or none does
        result = optimize(model, batches, loss_fn, method, **passed)
        result.apply_(model)
    return result
