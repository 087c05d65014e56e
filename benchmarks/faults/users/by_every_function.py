"""Losses that take a gradient themselves, by every function of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from tests.kernels.passes.written_out import WrittenOut
from tests.methods import rivals
from tests.utils import oracles
from torch import nn

import neuroinit as ni
from benchmarks.faults.users.checks import Case, near, sure, unchanged
from benchmarks.faults.users.inner_gradients import KINDS, Loss, maml, maml_functional

ITEM = 1


def true(oracle: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What an oracle finds; torch's own normalization layers have wrong higher derivatives."""
    with WrittenOut():
        return oracle(*arguments, **options)


def statistics(model: nn.Module, batch: Any, loss: Loss) -> None:
    """``gradient_stats`` against autograd."""
    stats = ni.gradient_stats(model, batch, sub_batches=3, compute_loss=loss)
    gram = true(oracles.gram, model, batch, oracles.sub_batch_slices_cover(12, 3, 0.0), None, loss)
    near(stats.norms, oracles.norms(gram))
    near(stats.cosine, oracles.cosine(gram))


def signs(model: nn.Module, batch: Any, loss: Loss) -> None:
    """``gradsign`` against autograd."""
    near(
        ni.gradsign(model, batch, compute_loss=loss),
        true(oracles.gradsign, model, batch, None, loss),
    )


def scored(model: nn.Module, batch: Any, loss: Loss) -> None:
    """``score``: the length of the gradient; operations cannot be counted."""
    found = ni.score(model, batch, ["grad_norm", "parameters", "flops"], compute_loss=loss)
    near(
        found["grad_norm"],
        oracles.norm(true(oracles.gram, model, batch, [slice(None)], None, loss)),
    )


def engine(name: str, model: nn.Module, batch: Any, loss: Loss) -> None:
    """Two steps of Algorithm 3, one of which may be constrained."""
    lr, norm = 1e-3, ni.gradient_stats(model, batch, compute_loss=loss).norm_max
    for gamma in (norm / 2, norm * 2):
        options = {"steps": 2, "lr": lr / max(1, norm), "gamma": gamma}
        method = ni.NIO.paper(**options, sub_batches=2, overlap=0.0)
        found = ni.optimize(model, [batch], None, method, loss, engine=name)
        scales, *_ = true(
            oracles.nio_paper, model, [batch], None, **options, D=2, r=0.0, compute_loss=loss
        )
        moved, expected = ({n: s - 1 for n, s in x.items()} for x in (found.scales, scales))
        near(moved, expected, 1e-3 if name == "differences" else 1e-6)


def gradinit(model: nn.Module, batch: Any, loss: Loss) -> None:
    """A step of GradInit of either kind, without momentum."""
    norm = ni.gradient_stats(model, batch, compute_loss=loss).norm_max
    for gamma in (norm / 1000, norm * 1000):
        method = ni.GradInit(steps=1, lr=1e-6, gamma=gamma, update=ni.Plain())
        found = ni.optimize(model, [batch], None, method, loss)
        _, _, expected = true(rivals.gradinit_derivative, model, batch, None, loss, gamma=gamma)
        near(
            {n: (1 - s) / 1e-6 for n, s in found.scales.items()},
            {n: expected[n] for n in found.scales},
            1e-5,
        )


def metainit(model: nn.Module, batch: Any, loss: Loss) -> None:
    """A step of MetaInit, without momentum."""
    _, expected = true(rivals.quotient_derivative, model, batch, None, loss)
    lr = 1e-3 / max(map(abs, expected.values()))
    method = ni.MetaInit(steps=1, lr=lr, update=ni.Plain(), scales_of=None)
    found = ni.optimize(model, [batch], None, method, loss)
    near(
        {n: (1 - s) / lr for n, s in found.scales.items()},
        {n: expected[n] for n in found.scales},
        1e-6,
    )


def default(model: nn.Module, batch: Any, loss: Loss) -> None:
    """``nio_`` as it is, and with an automatic bound: the statistics are those of autograd."""
    sub = 4 if loss in (maml, maml_functional) else 6
    gram = true(
        oracles.gram, model, batch, oracles.sub_batch_slices_cover(12, sub, 0.0), None, loss
    )
    for options in ({}, {"rule": ni.HeldNorm(), "gamma": "auto"}):
        found = ni.optimize(model, [batch], None, ni.NIO(steps=2, sub_batches=sub, **options), loss)
        assert found.before is not None
        near(found.before.norms, oracles.norms(gram))


def automatic(model: nn.Module, batch: Any, loss: Loss) -> None:
    """``auto_``: no candidate fails, and the start's validation loss is that of plain training."""
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    named = {"NIO": ni.NIO.paper(steps=1, lr=1e-3)}
    choice = ni.auto_(
        model, [batch] * 8, None, optimizer=sgd, compute_loss=loss, budget=12, candidates=named
    )
    failed = [record.failed for record in choice.candidates if record.failed]
    sure(not failed, f"failed: {failed}")
    start = next(r for r in choice.candidates if r.name == "the start itself")
    twin = oracles.training_copy(model)
    if choice.results:
        return
    sgd = torch.optim.SGD(twin.parameters(), lr=1e-3)
    losses = []
    for _ in start.losses:
        value = loss(twin, batch)
        losses.append(value.mean().item())
        sgd.zero_grad()
        value.mean().backward()
        sgd.step()
    near(start.losses, losses, 1e-9)


CALLS: dict[str, Callable[[nn.Module, Any, Loss], None]] = {
    "`gradient_stats`": statistics,
    "`gradsign`": signs,
    "`score`": scored,
    "engine `keep`": partial(engine, "keep"),
    "engine `stream`": partial(engine, "stream"),
    "engine `auto`": partial(engine, "auto"),
    "engine `differences`": partial(engine, "differences"),
    "`GradInit`": gradinit,
    "`MetaInit`": metainit,
    "`nio_`, automatic bound": default,
    "`auto_`": automatic,
}


def cases() -> Iterator[Case]:
    """Item 1: every loss by every function; one sample is not enough for MAML."""
    for kind, (loss, make, data) in KINDS.items():
        for name, call in CALLS.items():
            if call is signs and loss in (maml, maml_functional):
                continue
            yield Case(ITEM, f"{kind}: {name}", partial(_try, call, make, data, loss))


def _try(call: Callable[..., None], make: Callable[[], nn.Module], data: Any, loss: Loss) -> None:
    torch.manual_seed(0)
    model, batch = make().double(), data()
    in_place = ("parameters",) if call is automatic else ()
    with unchanged(model, but=in_place):
        call(model, batch, loss)
