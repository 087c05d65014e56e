"""Complex parameters, data that are not finite, losses without a graph or a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuroinit as ni
from benchmarks.faults.users.checks import (
    Broken,
    Case,
    refused,
    sure,
    told,
    unchanged,
)
from benchmarks.faults.users.small import BOUND, data, network


class Phases(nn.Module):
    """Has a complex parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex128))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.body(x) + self.phase.abs()


def _complex(how: str, call: Callable[..., Any]) -> None:
    model = Phases()
    before = model.phase.detach().clone()
    if how == "frozen":
        model.phase.requires_grad_(False)
    options = {"exclude": ("phase",)} if how == "excluded" else {}
    with unchanged(model, but=("parameters", "torch random")):  # some draw values, as nn.init does
        call(model, **options)
    sure(torch.equal(before, model.phase), "the phases have changed")


IN_PLACE: dict[str, Callable[..., Any]] = {
    "`nio_`": lambda m, **o: ni.nio_(m, data(), **o),
    "`nio_` with a bound": lambda m, **o: ni.nio_(m, data(), steps=2, **BOUND, **o),
    "`gradinit_`": lambda m, **o: ni.gradinit_(m, data(), steps=2, **o),
    "`metainit_`": lambda m, **o: ni.metainit_(m, data(), steps=2, **o),
    "`lsuv_`": lambda m, **o: ni.lsuv_(m, data(), **o),
    "`kaiming_`": lambda m, **o: ni.kaiming_(m, **o),
}


LOOKS: dict[str, Callable[..., Any]] = {
    "`nio_`": lambda m, d, loss: ni.nio_(m, d, loss),
    "`nio_` with a bound": lambda m, d, loss: ni.nio_(m, d, loss, steps=2, rule=ni.HeldNorm()),
    "`NIO.paper`": lambda m, d, loss: ni.optimize(m, d, loss, ni.NIO.paper(steps=2)),
    "`gradinit_`": lambda m, d, loss: ni.gradinit_(m, d, loss, steps=2),
    "`metainit_`": lambda m, d, loss: ni.metainit_(m, d, loss, steps=2),
    "`gradient_stats`": lambda m, d, loss: ni.gradient_stats(m, d[0], loss, 4),
    "`gradsign`": lambda m, d, loss: ni.gradsign(m, d[0], loss),
}


def _said(call: Any, spoil: Any, loss: Any, kind: Any, words: tuple[str, ...]) -> None:
    model = network()
    batches = [spoil(*batch) for batch in data()]
    try:
        with unchanged(model), refused(kind, *words):
            call(model, batches, loss)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error


def _spoiled(value: float) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def spoil(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clone()
        x[3, 2] = value
        return x, y

    return spoil


def _masked(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y = y.clone()
    y[4:8] = -100
    return x, y


def _same(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, y


def _without_graph(y: Tensor, t: Tensor) -> Tensor:
    with torch.no_grad():
        return F.cross_entropy(y, t)


UNUSABLE: dict[str, tuple[Any, Any, Any, tuple[str, ...]]] = {
    "NaN in the input": (
        _spoiled(math.nan),
        F.cross_entropy,
        ni.NonFiniteError,
        ("NaN or inf in a tensor of shape (16, 4)",),
    ),
    "inf in the input": (
        _spoiled(math.inf),
        F.cross_entropy,
        ni.NonFiniteError,
        ("NaN or inf in a tensor of shape (16, 4)",),
    ),
    "a detached loss": (
        _same,
        lambda y, t: F.cross_entropy(y, t).detach(),
        ValueError,
        ("does not depend on any trainable parameter",),
    ),
    "a loss under no_grad": (
        _same,
        _without_graph,
        ValueError,
        ("does not depend on any trainable parameter",),
    ),
    "a sub-batch without a label": (
        _masked,
        F.cross_entropy,
        ni.NonFiniteError,
        ("labels of sample 4 are -100",),
    ),
}


def _energy(model: nn.Module, batch: Any) -> Tensor:
    return model(batch[0]).square().mean()


def _consistency(model: nn.Module, batch: Any) -> Tensor:
    return F.mse_loss(model(batch[0]), model(batch[0].flip(1)))


def _critic(model: nn.Module, batch: Any) -> Tensor:
    """A Wasserstein critic: negative, and zero at zero."""
    return model(batch[0])[:, 0].mean() - model(1 + batch[0].flip(1))[:, 1].mean()


def _likelihood(model: nn.Module, batch: Any) -> Tensor:
    """A negative log-likelihood that is below zero."""
    mean, log_std, _ = model(batch[0]).unbind(1)
    return ((batch[0][:, 0] / 10 - mean).square() * (-2 * log_std).exp() / 2 + log_std - 3).mean()


def _self_supervised(model: nn.Module, batch: Any) -> Tensor:
    """Cosine similarity of two views: not defined at zero."""
    one, two = model(batch[0]), model(batch[0] + 0.1)
    return 1 - (one * two).sum(1).div(one.norm(dim=1) * two.norm(dim=1)).mean()


ZERO = {
    "an energy": _energy,
    "a consistency loss": _consistency,
    "a Wasserstein critic": _critic,
    "a negative likelihood": _likelihood,
    "a self-supervised cosine": _self_supervised,
}


def _own_bound(loss: Any, bounded: bool) -> None:
    model = network()
    options: dict[str, Any] = {"rule": ni.HeldNorm()} if bounded else {}
    with unchanged(model, but=("parameters",)):
        if bounded and loss in (_energy, _consistency):
            with told("takes the bound from the model's own loss"):
                found = ni.nio_(model, data(), compute_loss=loss, steps=3, **options)
        else:
            found = ni.nio_(model, data(), compute_loss=loss, steps=3, **options)
    if bounded:
        sure(0 < found.settings["gamma"] < math.inf, f"gamma = {found.settings['gamma']}")
    sure(all(map(math.isfinite, found.scales.values())), "a scale is not finite")


def cases() -> Iterator[Case]:
    """Items 9 and 10."""
    for name, call in IN_PLACE.items():
        for how in ("frozen", "excluded"):
            yield Case(9, f"{how} complex parameter: {name}", partial(_complex, how, call))
    for name, what in UNUSABLE.items():
        few = ("`NIO.paper`", "`gradinit_`", "`metainit_`")  # their sub-batches have labels
        for function_name, call in LOOKS.items():
            if name == "a sub-batch without a label" and function_name in few:
                continue
            yield Case(9, f"{name}: {function_name}", partial(_said, call, *what))
    for name, loss in ZERO.items():
        for bounded in (False, True):
            kind = "with a bound" if bounded else "default"
            yield Case(10, f"{name}: {kind}", partial(_own_bound, loss, bounded))
