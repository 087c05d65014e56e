"""Initializations in place, like ``torch.nn.init``: for whole models, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.common.batches import Batch
from neuroinit.common.layout import batch_layout
from neuroinit.methods.base import Initialization
from neuroinit.methods.classic import Kaiming, Orthogonal, TruncNormal, Xavier
from neuroinit.methods.fixup import FixUp
from neuroinit.methods.gradinit import GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio import NIO
from neuroinit.model.optimizers import OptimizerLike, rate_of
from neuroinit.model.problem import LossFunction
from neuroinit.model.validation import check_batches
from neuroinit.run import options as o
from neuroinit.run.optimize import optimize
from neuroinit.run.result import Result
from neuroinit.run.verify import KeptBatches, verified


@o.shows_options(NIO, optimize)
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

    The scaled parameters change, and nothing else; on any exception nothing changes. Biases end
    near zero, at ``min_scale`` times what they are. Keep biases that you set on purpose, such as
    those of an LSTM's forget gates, by ``exclude=("*bias*",)``.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`.
        loss_fn: ``loss_fn(output, target)``. Standardize the targets of a regression: the bound of
            the gradient norm is taken from the loss.
        optimizer: The optimizer that you will train with, or a function of parameters that makes
            it. The bound then fits SGD's learning rate and momentum, and the result is verified.
        verify: With an ``optimizer``, compare short trainings from the model as it is and from the
            result, at most 54 steps together, before the model is changed. The result is applied
            whole, with its log-scales halved, or not at all; ``result.verified`` says which.
        **options: Fields of :class:`NIO`, for example ``steps=40`` or ``gamma=2.0``, and options of
            :func:`optimize`, for example ``compute_loss=`` or ``engine=``.

    Returns:
        The result, already applied.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(4)]
        >>> len(nio_(model, batches, steps=3).history)
        3
    """
    if optimizer is None:
        return _learn("nio_", NIO, model, batches, loss_fn, options)
    options["rate"] = rate_of(optimizer)
    kept = None
    if batches is not None and verify:
        check_batches(batches, pairs=loss_fn is not None and not options.get("compute_loss"))
        kept = KeptBatches(batches)
    fields, passed = o.checked_fields("nio_", NIO, dict(options))
    result = optimize(model, kept or batches, loss_fn, NIO(**fields), **passed)
    if kept is not None:
        layout = batch_layout(options.get("cut"), options.get("batch_dim", 0))
        loss = loss_fn, options.get("compute_loss")
        result = verified(model, result, kept.kept, *loss, optimizer, layout)
    result.apply_(model)
    return result


@o.shows_options(GradInit, optimize)
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
        >>> _ = torch.manual_seed(0)
        >>> batches = [(torch.randn(24, 4), torch.randint(3, (24,))) for _ in range(4)]
        >>> len(gradinit_(nn.Linear(4, 3), batches, steps=3).history)
        3
    """
    return _learn("gradinit_", GradInit, model, batches, loss_fn, options)


@o.shows_options(MetaInit, optimize)
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
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        >>> from neuroinit.model.random_data import random_batches
        >>> len(metainit_(model, random_batches((16, 4), classes=3), steps=3).history)
        3
    """
    return _learn("metainit_", MetaInit, model, batches, loss_fn, options)


@o.shows_options(LSUV, optimize)
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
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> inputs = torch.randn(64, 4)
        >>> _ = lsuv_(model, [inputs])
        >>> 0.9 < model(inputs).var() < 1.1
        tensor(True)
    """
    result = _learn("lsuv_", LSUV, model, batches, loss_fn, options)
    _advance_generator()
    return result


@o.shows_options(Kaiming)
def kaiming_(model: nn.Module, **fields: Unpack[o.KaimingFields]) -> Result:
    """Kaiming initialization of a whole model; the fields are those of :class:`Kaiming`.

    Example:
        >>> model = nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 3))
        >>> _ = kaiming_(model)
        >>> deviation = model[0].weight.std().item()
        >>> round(deviation * 200**0.5, 1), model[0].bias.any().item()
        (1.0, False)
    """
    return _draw("kaiming_", Kaiming, model, fields)


@o.shows_options(Xavier)
def xavier_(model: nn.Module, **fields: Unpack[o.XavierFields]) -> Result:
    """Xavier initialization of a whole model; the fields are those of :class:`Xavier`."""
    return _draw("xavier_", Xavier, model, fields)


@o.shows_options(Orthogonal)
def orthogonal_(model: nn.Module, **fields: Unpack[o.OrthogonalFields]) -> Result:
    """Orthogonal initialization of a whole model; the fields are those of :class:`Orthogonal`."""
    return _draw("orthogonal_", Orthogonal, model, fields)


@o.shows_options(TruncNormal)
def trunc_normal_(model: nn.Module, **fields: Unpack[o.TruncNormalFields]) -> Result:
    """Truncated normal initialization of a whole model; fields as for :class:`TruncNormal`."""
    return _draw("trunc_normal_", TruncNormal, model, fields)


@o.shows_options(FixUp)
def fixup_(model: nn.Module, **fields: Unpack[o.KaimingFields]) -> Result:
    """FixUp initialization of a residual network that was built for it, see :class:`FixUp`."""
    return _draw("fixup_", FixUp, model, fields)


def _learn(
    name: str,
    kind: type[Initialization],
    model: nn.Module,
    batches: Iterable[Batch] | None,
    loss_fn: LossFunction | None,
    options: Mapping[str, Any],
) -> Result:
    """Run a method on batches and apply its result."""
    fields, passed = o.checked_fields(name, kind, dict(options))
    result = optimize(model, batches, loss_fn, kind(**fields), **passed)
    result.apply_(model)
    return result


def _draw(
    name: str, kind: type[Initialization], model: nn.Module, options: Mapping[str, Any]
) -> Result:
    """Draw fresh values and apply them."""
    fields, passed = o.checked_fields(name, kind, dict(options))
    result = optimize(model, (), None, kind(**fields), **passed)
    result.apply_(model)
    _advance_generator()
    return result


def _advance_generator() -> None:
    """Take a number from the global generator, so that the next model is drawn differently."""
    torch.rand(())
