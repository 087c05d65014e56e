"""Compare several initializations of one model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.choose.compare_arguments import (
    Train,
    check_compared,
    checked_seeds,
    fresh,
    held_out,
    named_methods,
)
from neuroinit.choose.comparison_table import AS_IS, Comparison, ComparisonRecord, Curves
from neuroinit.common.batches import Batch
from neuroinit.common.errors import GradientError
from neuroinit.common.layout import BatchLayout, Cut, batch_layout
from neuroinit.common.process.random_state import isolated, seed_all
from neuroinit.common.process.signals import allowed
from neuroinit.common.progress import Progress
from neuroinit.distributed.ranks import Ranks, ranks
from neuroinit.distributed.same_tensors import check_same_tensors
from neuroinit.gradients.statistics.gradient_stats import GradientStats, measure
from neuroinit.methods.base import Initialization
from neuroinit.methods.warmup import Warmup
from neuroinit.model.arguments.validation import check_batches
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.run.optimize import optimize
from neuroinit.run.results.about import describe
from neuroinit.run.results.result import StepRecord

_SAME_MODEL = "Let `model_factory` make the same model on every rank; torch is seeded before."
_TIMED = 3  # training steps whose fastest is the unit of cost


def compare(
    model_factory: Callable[[], nn.Module],
    batches: Iterable[Batch],
    methods: Sequence[Initialization | None] | Mapping[str, Initialization | None],
    seeds: Iterable[int] = (0, 1, 2),
    loss_fn: LossFunction | None = F.cross_entropy,
    *,
    train: Train | None = None,
    compute_loss: ComputeLoss | None = None,
    engine: str = "auto",
    progress: bool = True,
    show: bool = True,
    cut: Cut | None = None,
    batch_dim: int = 0,
) -> Comparison:
    """Initialize a model with several methods, and measure and optionally train each.

    Args:
        model_factory: Makes a fresh model; torch is seeded before it is called.
        batches: A list or a DataLoader; every method iterates over it again. Statistics are those
            of the first batch; if it is a list, the methods get the other batches.
        methods: Initializations; ``None`` leaves the model as it is. In a list, their names
            are those of their classes ("NIO", "NIO 2"); in a dict, the keys are the names.
        seeds: One model per seed and method.
        loss_fn: ``loss_fn(output, target)``.
        train: ``train(model) -> score``, called with every initialized model; torch is seeded
            before. It may return ``(score, losses)``; the report then plots the losses. If a
            :class:`~neuroinit.Warmup` is among the methods, and only then, it is called as
            ``train(model, warmup)`` with the ``Warmup``, or ``None`` for the other methods.
        compute_loss: ``compute_loss(model, batch)`` for batches that are not pairs.
        engine: As for :func:`optimize`.
        progress: Show a progress bar, if this is a terminal and it takes longer than two seconds.
        show: Print the table at the end.
        cut: As for :func:`optimize`.
        batch_dim: As for :func:`optimize`.

    Under torch.distributed all processes call this function. Statistics are those of the first
    batches of all ranks together, the ranks share the work of a method, and times and scores are
    means over the ranks; rank 0 prints.

    Returns:
        One record for each method and seed. A method whose gradients are not finite or zero is
        recorded as failed; other errors are raised.

    Example:
        >>> import torch
        >>> from neuroinit import Kaiming, Xavier
        >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
        >>> factory = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> table = compare(factory, batches, [None, Kaiming(), Xavier()], seeds=[0], show=False)
        >>> [record.method for record in table]
        ['as it is', 'Kaiming', 'Xavier']
    """
    all_ranks = ranks()
    records: list[ComparisonRecord] = []
    curves: dict[tuple[str, int], Curves] = {}
    with isolated(), closing(all_ranks), all_ranks.together():
        named = named_methods(methods)
        check_compared(model_factory, named, train, engine)
        check_batches(batches, pairs=loss_fn is not None and compute_loss is None, again=True)
        seeds, layout = checked_seeds(seeds), batch_layout(cut, batch_dim)
        warmed = any(isinstance(method, Warmup) for method in named.values())
        held, rest = held_out(batches, all_ranks, layout)
        shown = progress and all_ranks.rank == 0
        model: nn.Module | None = None
        with Progress("compare", len(named) * len(seeds), shown) as bar:
            for seed in seeds:
                for name, method in named.items():
                    bar.show(len(records), f"seed {seed}, {name}")
                    seed_all(seed)
                    with allowed():
                        model = fresh(model_factory(), model)
                    one = _Cell(model, held, loss_fn, compute_loss, engine, seed, all_ranks, layout)
                    records.append(one.record(name, method, rest, train, warmed))
                    curves[name, seed] = Curves(tuple(one.history), tuple(one.losses))
    base = next((n for n, m in named.items() if m is None), AS_IS)
    found = Comparison(records, base, curves, describe(one.model, layout.size(held)))
    if show and all_ranks.rank == 0:
        found.print()
    return found


class _Cell:
    """One cell of the comparison: the model of one seed, initialized by one method."""

    def __init__(
        self,
        model: nn.Module,
        held: Batch,
        loss_fn: LossFunction | None,
        compute_loss: ComputeLoss | None,
        engine: str,
        seed: int,
        ranks: Ranks,
        layout: BatchLayout,
    ) -> None:
        self.model, self.held, self.seed, self.ranks = model, held, seed, ranks
        self.loss_fn, self.compute_loss, self.engine = loss_fn, compute_loss, engine
        self.layout = layout
        self.history: list[StepRecord] = []
        self.losses: list[float] = []

    def record(
        self,
        name: str,
        method: Initialization | None,
        batches: Iterable[Batch],
        train: Train | None,
        warmed: bool,
    ) -> ComparisonRecord:
        """Initialize, measure and train the model."""
        before, failed, unit = self._stats(), "", self._training_step()
        seed_all(self.seed)
        seconds = math.nan
        try:
            seconds = 0.0 if method is None else self._initialize(method, batches)
        except GradientError as error:
            failed = str(error)
        after = None if failed else self._stats()
        score = math.nan if failed or train is None else self._train(method, train, warmed)
        seconds, unit, score = self._means(seconds, unit, score)
        old, new = _numbers(before), _numbers(after)
        return ComparisonRecord(
            method=name,
            seed=self.seed,
            **{f"{key}_before": value for key, value in old.items()},
            **new,
            seconds=seconds,
            cost=seconds / unit,
            score=score,
            failed=failed,
        )

    def _means(self, *values: float) -> list[float]:
        """Means over the ranks."""
        own = torch.tensor(values, dtype=torch.float64, device="cpu")
        means: list[float] = (self.ranks.sum(own) / self.ranks.world).tolist()
        return means

    def _initialize(self, method: Initialization, batches: Iterable[Batch]) -> float:
        """Apply a method; return the seconds of its steps, or of drawing values without data."""
        begun = time.perf_counter()
        if method.steps == 0:
            optimize(self.model, (), None, method).apply_(self.model)
            return time.perf_counter() - begun
        result = optimize(
            self.model,
            batches,
            self.loss_fn,
            method,
            self.compute_loss,
            engine=self.engine,
            progress=False,
            cut=self.layout.custom,
            batch_dim=self.layout.dim,
        )
        result.apply_(self.model)
        self.history = result.history
        return sum(record.seconds for record in result.history)

    def _stats(self) -> GradientStats | None:
        problem = Problem(
            self.model, self.loss_fn, self.compute_loss, ranks=self.ranks, layout=self.layout
        )
        check_same_tensors(self.ranks, problem.original, fix=_SAME_MODEL)
        point, batch = problem.at(problem.unit_scales), problem.prepare(self.held)
        try:
            return measure(point, batch, Initialization().measured(problem, batch, None))
        except GradientError:
            return None

    def _train(self, method: Initialization | None, train: Train, warmed: bool) -> float:
        """Train and return the score; sets ``losses`` if ``train`` returns them."""
        seed_all(self.seed)
        warmup = [method if isinstance(method, Warmup) else None] if warmed else []
        with allowed():
            found = train(self.model, *warmup)
        score, losses = found if isinstance(found, tuple) else (found, ())
        self.losses = [float(loss) for loss in losses]
        return float(score)

    def _training_step(self) -> float:
        """Seconds of a forward and backward pass of the batch; the fastest of ``_TIMED``."""
        problem = Problem(self.model, self.loss_fn, self.compute_loss, layout=self.layout)
        prepared, times = problem.prepare(self.held), []
        for _ in range(_TIMED):
            with problem.at(problem.unit_scales).session() as session:
                begun = time.perf_counter()
                session.gradient(session.loss(prepared), problem.trainable)
                times.append(time.perf_counter() - begun)
        return min(times)


def _numbers(stats: GradientStats | None) -> dict[str, float]:
    names = ("loss", "cosine", "norm", "norm_ratio")
    return {n: math.nan if stats is None else float(getattr(stats, n)) for n in names}
