"""The automatic choice: several starts compete on short rollouts of the user's own optimizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import torch.nn.functional as F
from torch import nn

from neuroinit.choose.auto_result import START, AutoResult
from neuroinit.choose.tournament import Candidate, Contest, rounds_of
from neuroinit.common.batches import Batch, batch_size
from neuroinit.common.checks import check_count
from neuroinit.common.interrupts import allowed
from neuroinit.common.progress import Progress
from neuroinit.common.random_state import isolated, random_state, set_random_state
from neuroinit.distributed.ranks import ALONE, Ranks, ranks
from neuroinit.methods.base import Initialization
from neuroinit.methods.classic import Kaiming, Orthogonal
from neuroinit.methods.gradinit import GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.nio.method import NIO
from neuroinit.model.optimizers import OptimizerLike, check_optimizer, others_frozen
from neuroinit.model.problem import ComputeLoss, LossFunction
from neuroinit.model.selection import unwrap
from neuroinit.model.validation import check_batches, check_callables, check_values

KEPT = 64  # most batches that are held for it all
NIO_STEPS = 20  # half of NIO()'s: the norm is right by then


def default_candidates() -> dict[str, Candidate]:
    """Who competes with the start: a method, or several, one after the other."""
    return {
        "Kaiming": Kaiming(),
        "orthogonal": Orthogonal(),
        "LSUV": LSUV(),
        "GradInit": GradInit(steps=30, lr=0.05),
        "NIO": NIO(steps=NIO_STEPS),
        "NIO, half the bound": NIO(steps=NIO_STEPS, gamma_per_loss=0.5),
        "LSUV, then NIO": (LSUV(), NIO(steps=NIO_STEPS)),
    }


def auto_(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: LossFunction | None = F.cross_entropy,
    *,
    optimizer: OptimizerLike,
    compute_loss: ComputeLoss | None = None,
    budget: int = 200,
    candidates: Mapping[str, Candidate] | None = None,
    progress: bool = True,
) -> AutoResult:
    """Choose a start by trying: the best after short trainings is applied in place.

    Candidates are trained with your optimizer, on copies of the parameters, for a few steps; the
    better half goes on, and so forth (successive halving). The start itself is always in the last
    round, and a candidate is applied only if it beats it by more than the noise between batches,
    and is not behind it at twice the learning rate, where what is near divergence diverges.
    Rollouts are without dropout, and hold one copy of the parameters for every candidate.

    Under torch.distributed all processes call this function. Every rank trains on its own batches,
    with the mean gradient of all ranks, and scores are means over the batches of all ranks: all
    ranks choose the same start, and end with the same parameters.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`, of which up to 64 are held. The first four judge
            and the others train; of fewer than eight, a quarter of each judges.
        loss_fn: ``loss_fn(output, target)``.
        optimizer: The optimizer that you will train with, made for this model, or a function of
            parameters such as ``lambda p: torch.optim.SGD(p, lr=0.1)``. It is not touched, nor
            are parameters that it does not hold. Call this before a scheduler changes its learning
            rate.
        compute_loss: ``compute_loss(model, batch)`` for batches that are no pairs.
        budget: Training steps of all rollouts together. Making the candidates comes on top, and is
            part of the ``cost`` that the result states.
        candidates: Names and methods; by default classic starts, LSUV, GradInit and NIO.
        progress: Show a progress bar, if this is a terminal and it takes longer than two seconds.

    Returns:
        Who competed, at what score, who won, and what it cost.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(12)]
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> result = auto_(model, batches, optimizer=sgd, budget=40)
        >>> result.steps <= 40
        True
    """
    all_ranks = ranks()
    with isolated(), closing(all_ranks), all_ranks.together():
        check_callables(model, loss_fn, compute_loss)
        check_batches(batches, pairs=loss_fn is not None and compute_loss is None)
        check_optimizer(optimizer)
        _check(candidates)
        named = dict(default_candidates() if candidates is None else candidates)
        check_count("budget", budget, (len(named) + 1) * rounds_of(len(named) + 1))
        with allowed():
            read = list(islice(batches, KEPT))
        kept = _full(read, all_ranks)
        check_values(kept)
        with others_frozen(unwrap(model), optimizer):
            set_random_state(all_ranks.first(random_state()))  # every rank draws the same values
            contest = Contest(model, kept, loss_fn, compute_loss, optimizer, all_ranks)
            with Progress("auto", len(named) + budget, progress and all_ranks.rank == 0) as bar:
                contest.enter(named, bar, forgiving=candidates is None)
                contest.play(budget, bar)
            found = contest.found()
            contest.check_applied(found)
        found.apply_(model)
    return found


def _full(batches: list[Any], ranks: Ranks = ALONE) -> list[Any]:
    """Without short batches, such as the last of a data loader; as many on every rank."""
    full = [2 * batch_size(b) >= batch_size(batches[0]) for b in batches]
    table = [json.loads(text) for text in ranks.texts(json.dumps(full))]
    return [b for b, *kept in zip(batches, *table, strict=False) if all(kept)]


def _check(candidates: Any) -> None:
    if candidates is None:
        return
    if not isinstance(candidates, Mapping):
        raise TypeError(
            "Parameter `candidates` should map names to methods, such as `{'NIO': NIO()}`. "
            f"Found `candidates = {candidates!r}`."
        )
    if START in candidates:
        raise ValueError(f"Parameter `candidates` should have other names than `{START}`.")
    for name, candidate in candidates.items():
        methods = list(candidate) if isinstance(candidate, (list, tuple)) else [candidate]
        if not methods or not all(isinstance(m, Initialization) for m in methods):
            raise TypeError(
                "Parameter `candidates` should map names to methods such as `NIO()`, or to "
                f"several. Found `{name}: {candidate!r}`."
            )
