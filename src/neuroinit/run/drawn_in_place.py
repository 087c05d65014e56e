"""Initializations without data, in place, like ``torch.nn.init``: ``kaiming_`` and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import torch
from torch import nn

from neuroinit.methods.base import Initialization
from neuroinit.methods.classic.fixup import FixUp
from neuroinit.methods.classic.schemes import Kaiming, Orthogonal, TruncNormal, Xavier
from neuroinit.methods.fields import (
    KaimingFields,
    OrthogonalFields,
    TruncNormalFields,
    XavierFields,
)
from neuroinit.run.optimize import optimize
from neuroinit.run.options import method_and_options, shows_options
from neuroinit.run.results.result import Result


@shows_options(KaimingFields, Kaiming)
def kaiming_(model: nn.Module, **fields: Unpack[KaimingFields]) -> Result:
    """Kaiming initialization of a whole model; the fields are those of :class:`Kaiming`.

    Example:
        >>> model = nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 3))
        >>> _ = kaiming_(model)
        >>> deviation = model[0].weight.std().item()
        >>> round(deviation * 200**0.5, 1), model[0].bias.any().item()
        (1.0, False)
    """
    return _draw("kaiming_", Kaiming, KaimingFields, model, fields)


@shows_options(XavierFields, Xavier)
def xavier_(model: nn.Module, **fields: Unpack[XavierFields]) -> Result:
    """Xavier initialization of a whole model; the fields are those of :class:`Xavier`.

    Example:
        >>> model = nn.Linear(400, 200)
        >>> _ = xavier_(model)
        >>> round(model.weight.std().item() * 300**0.5, 1)
        1.0
    """
    return _draw("xavier_", Xavier, XavierFields, model, fields)


@shows_options(OrthogonalFields, Orthogonal)
def orthogonal_(model: nn.Module, **fields: Unpack[OrthogonalFields]) -> Result:
    """Orthogonal initialization of a whole model; the fields are those of :class:`Orthogonal`.

    Example:
        >>> model = nn.Linear(8, 8)
        >>> _ = orthogonal_(model)
        >>> torch.allclose(model.weight @ model.weight.T, torch.eye(8), atol=1e-5)
        True
    """
    return _draw("orthogonal_", Orthogonal, OrthogonalFields, model, fields)


@shows_options(TruncNormalFields, TruncNormal)
def trunc_normal_(model: nn.Module, **fields: Unpack[TruncNormalFields]) -> Result:
    """Truncated normal initialization of a whole model; fields as for :class:`TruncNormal`.

    Example:
        >>> model = nn.Linear(400, 300)
        >>> _ = trunc_normal_(model, std=0.02)
        >>> model.weight.abs().max().item() <= 0.04001, round(model.weight.std().item(), 2)
        (True, 0.02)
    """
    return _draw("trunc_normal_", TruncNormal, TruncNormalFields, model, fields)


@shows_options(KaimingFields, FixUp)
def fixup_(model: nn.Module, **fields: Unpack[KaimingFields]) -> Result:
    """FixUp initialization of a residual network that was made for it, see :class:`FixUp`.

    Example:
        The branch has one layer here; :class:`FixUp` has an example with a residual block.

        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8)))
        >>> model[1].fixup_branch = list(model[1])
        >>> model.fixup_classifier = nn.Linear(8, 3)
        >>> _ = fixup_(model)
        >>> model.fixup_classifier.weight.any().item()
        False
    """
    return _draw("fixup_", FixUp, KaimingFields, model, fields)


def _draw(
    name: str,
    kind: type[Initialization],
    typed: type,
    model: nn.Module,
    fields: Mapping[str, object],
) -> Result:
    """Draw fresh values and put them in the model."""
    method, _ = method_and_options(name, kind, typed, fields)
    result = optimize(model, (), None, method)
    result.apply_(model)
    advance_generator()
    return result


def advance_generator() -> None:
    """Take a number from the global generator, so that the next model is drawn differently."""
    torch.rand((), device="cpu")
