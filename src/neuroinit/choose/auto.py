"""``auto_``: chooses among initializations by short trainings with the user's optimizer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import islice

import torch.nn.functional as F
from torch import nn

from neuroinit.choose.auto_result import START, AutoResult
from neuroinit.choose.tournament import Candidate, Tournament, rounds_of
from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_count, check_names
from neuroinit.common.layout import Cut, batch_layout
from neuroinit.common.process.random_state import isolated, random_state, set_random_state
from neuroinit.common.process.signals import allowed
from neuroinit.common.progress import Progress
from neuroinit.distributed.ranks import ranks
from neuroinit.methods.base import Initialization
from neuroinit.methods.classic.layers import EMBEDDINGS
from neuroinit.methods.classic.schemes import TruncNormal
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.nio.method import NIO
from neuroinit.methods.small_branches import SmallBranches
from neuroinit.model.arguments.optimizers import (
    OptimizerLike,
    check_optimizer,
    others_frozen,
    rate_fields,
)
from neuroinit.model.arguments.validation import check_batches, check_callables, check_values
from neuroinit.model.parameters.selection import unwrap
from neuroinit.model.problem import ComputeLoss, LossFunction
from neuroinit.run.rollout import full_batches

KEPT = 64  # most batches that are kept in memory
BUDGET = 100  # training steps of all short trainings
NEAR_ZERO = 0.01  # factor of the last layers of residual branches

log = logging.getLogger(__name__)


def default_candidates(model: nn.Module, optimizer: OptimizerLike) -> dict[str, Candidate]:
    """The default candidates by name; each is a method, or several that are applied in order.

    Small branches are for residual networks, and normal values for networks with embeddings, as in
    GPT-2. A candidate that does not differ from another is not tried.
    """
    nio = NIO(**rate_fields(optimizer))
    found: dict[str, Candidate] = {
        "NIO": nio,
        "LSUV": LSUV(),
        "LSUV, small branches": (LSUV(), SmallBranches()),
        "small branches": SmallBranches(),
        "branches near zero": SmallBranches(factor=NEAR_ZERO),
    }
    if any(isinstance(module, EMBEDDINGS) for module in model.modules()):
        found["normal 0.02, small branches"] = (TruncNormal(), SmallBranches())
    return found


def auto_(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: LossFunction | None = F.cross_entropy,
    *,
    optimizer: OptimizerLike,
    compute_loss: ComputeLoss | None = None,
    budget: int = BUDGET,
    candidates: Mapping[str, Candidate] | None = None,
    progress: bool = True,
    cut: Cut | None = None,
    batch_dim: int = 0,
) -> AutoResult:
    """Choose an initialization by short trainings, and apply the best in place.

    Candidates are trained with your optimizer, on copies of the parameters, for a few steps. The
    better half is trained further, and so on (successive halving). The model as it is takes part in
    every round. Trainings are judged by their validation loss minus what they have learned about
    the inputs: how much higher the loss is with the targets of other samples. A candidate is
    applied only if this score is lower by more than the noise between batches. If the model as it
    is diverges or learns nothing about its inputs, the candidate that has learned most is applied.
    Trainings are without dropout, and hold one copy of the parameters per candidate.

    Under torch.distributed all processes call this function. Every rank trains on its own batches,
    with the mean gradient of all ranks, and scores are means over the batches of all ranks: all
    ranks choose the same candidate, and end with the same parameters.

    Args:
        model: Any module.
        batches: Batches as for :func:`optimize`; the first 64 are kept. The first four validate
            and the others train; of fewer than eight, a quarter of each validates.
        loss_fn: ``loss_fn(output, target)``.
        optimizer: The optimizer that you will train with, made for this model, or a function of
            parameters such as ``lambda p: torch.optim.SGD(p, lr=0.1)``. It does not change, nor do
            parameters that it does not hold. Call this before a scheduler changes its learning
            rate.
        compute_loss: ``compute_loss(model, batch)`` for batches that are not pairs.
        budget: Training steps of all short trainings together. Computing the candidates takes
            extra time, which is included in ``result.cost``.
        candidates: Name -> method. By default NIO, LSUV, small residual branches, branches near
            zero, LSUV with small branches and, if there are embeddings, normal values with small
            branches.
        progress: Show a progress bar, if this is a terminal and it takes longer than two seconds.
        cut: As for :func:`optimize`.
        batch_dim: The dimension of samples in tensors.

    Returns:
        The candidates with their validation losses, the one that was applied, and the cost.

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
        if candidates is None:
            named = default_candidates(unwrap(model), optimizer)
        else:
            named = dict(candidates)
        check_count("budget", budget, (len(named) + 1) * rounds_of(len(named) + 1))
        layout = batch_layout(cut, batch_dim)
        with allowed():
            read = list(islice(batches, KEPT))
        kept = full_batches(read, layout, all_ranks)
        check_values(kept)
        with others_frozen(unwrap(model), optimizer):
            set_random_state(all_ranks.first(random_state()))  # every rank draws the same values
            tournament = Tournament(
                model, kept, loss_fn, compute_loss, optimizer, layout, all_ranks
            )
            with Progress("auto", len(named) + budget, progress and all_ranks.rank == 0) as bar:
                tournament.make_candidates(named, bar, forgiving=candidates is None)
                tournament.run(budget, bar)
            found = tournament.result(budget)
            tournament.check_applied(found)
        found.apply_(model)
        if all_ranks.rank == 0:
            log.info("auto_ applied %s: %s. %s", found.winner, found.verdict, found.costs())
    return found


def _check(candidates: object) -> None:
    if candidates is None:
        return
    if not isinstance(candidates, Mapping):
        raise TypeError(
            "Parameter `candidates` should map names to methods, such as `{'NIO': NIO()}`. "
            f"Found `candidates = {candidates!r}`."
        )
    check_names("candidates", candidates)
    if START in candidates:
        raise ValueError(f"Parameter `candidates` should have other names than `{START}`.")
    for name, candidate in candidates.items():
        methods = list(candidate) if isinstance(candidate, (list, tuple)) else [candidate]
        if not methods or not all(isinstance(m, Initialization) for m in methods):
            raise TypeError(
                "Parameter `candidates` should map names to methods such as `NIO()`, or to "
                f"several. Found `{name}: {candidate!r}`."
            )
