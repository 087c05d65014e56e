"""The public function ``optimize``, which runs a method on batches and returns its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.common.batches import Batch, Data
from neuroinit.common.checks import (
    check_autocast,
    check_callable,
    check_choice,
    check_count,
    check_instance,
)
from neuroinit.common.layout import BatchLayout, Cut, batch_layout
from neuroinit.common.process.random_state import isolated, set_random_state
from neuroinit.common.targets import Targets
from neuroinit.distributed.fsdp import is_sharded_model
from neuroinit.distributed.ranks import Ranks, ranks
from neuroinit.methods.base import Initialization
from neuroinit.methods.nio.method import NIO
from neuroinit.model.arguments.random_data import in_place_of_data
from neuroinit.model.arguments.validation import check_batches
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.run.engine_choice import AUTO, ENGINES, Schedule
from neuroinit.run.loop.checkpoint import Checkpoint
from neuroinit.run.loop.run import OnStep, Run
from neuroinit.run.options import RunOptions
from neuroinit.run.results.result import Result
from neuroinit.sharded.problem import ShardedProblem


def optimize(
    model: nn.Module,
    batches: Iterable[Batch] | None = None,
    loss_fn: LossFunction | None = F.cross_entropy,
    method: Initialization | None = None,
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
    cut: Cut | None = None,
    batch_dim: int = 0,
    targets: Targets | None = None,
) -> Result:
    """Find a better initialization for a model and return it. The model is unchanged.

    Args:
        model: Any module. Wrappers (DDP, ``torch.compile``) are removed.
        batches: A DataLoader, a list or a generator. An element is ``(inputs, targets)``, or
            anything with ``compute_loss``. A list shorter than ``steps`` is repeated. ``None`` for
            no data: see ``example``.
        loss_fn: ``loss_fn(output, target)``: a scalar mean, or one loss per sample.
        method: ``NIO()`` by default; or any other initialization, such as ``GradInit()``.
        compute_loss: ``compute_loss(model, batch)`` in place of ``loss_fn``, for example
            ``lambda model, batch: model(**batch).loss``.
        engine: How second derivatives are computed; ``NIO()`` and methods such as ``LSUV()`` have
            none. ``"keep"`` (fastest), ``"stream"`` (least memory) or ``"auto"`` are exact.
            ``"differences"`` is approximate: for sharded models, and for operators without a double
            backward.
        microbatch: Largest number of samples in one pass, for losses in which samples do not depend
            on each other.
        progress: Show a progress bar, if this is a terminal and it takes longer than two seconds.
        on_step: Called with the record of every step, for example to log it.
        memory_limit: Bytes of extra memory that ``engine="auto"`` may use; by default half of the
            free memory of a CPU, and 80% of a GPU's. It keeps all graphs if they fit, else streams
            them, in micro-batches if one sub-batch alone does not fit. If memory still runs out,
            the step is repeated in smaller pieces with a warning.
        autocast: ``torch.bfloat16`` runs forward and backward passes in bfloat16 where torch's
            autocast does; sums stay in float32 and float64. Faster on suitable hardware, and not
            exact: ``docs/evidence/performance.md`` has the error.
        checkpoint: A file from which an interrupted run continues exactly; call again with the same
            arguments. It is removed when the run has ended.
        checkpoint_every: Steps between two writes of that file.
        example: In place of ``batches``, for a classifier: some inputs, or a shape. Batches are
            then random inputs with the mean and standard deviation of the example (0 and 1 for a
            shape) and random labels. ``docs/evidence/trainability.md`` compares with real data.
        cut: ``cut(batch, start, stop)`` returns some samples of a batch that cannot be cut along a
            dimension of its tensors, such as a graph.
        batch_dim: The dimension of samples in tensors, for example 1 for ``(time, samples, ...)``.
        targets: With ``compute_loss``: which entry of a batch has the targets, a key, an index or a
            tuple of several; by default ``"labels"``, or 1 for pairs. For ``stats.agreement`` only.

    Under torch.distributed all processes call this function and share the work, see
    ``docs/guide/several-processes.md``.

    Returns:
        The scales, the history, and statistics before and after. ``result.apply_(model)`` scales
        the model.

    Raises:
        TypeError, ValueError: If an argument or a batch is not usable.
        GradientError: If a gradient is zero or not finite; its ``result`` has the earlier steps.
        RuntimeError: If an operator of the model has no double backward.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(4)]
        >>> result = optimize(model, batches, method=NIO(steps=3))
        >>> sorted(result.scales)
        ['0.bias', '0.weight', '2.bias', '2.weight']
    """
    method = NIO() if method is None else method
    all_ranks = _ranks(model, method)
    with isolated(), closing(all_ranks), all_ranks.together():
        batches = _data(batches, example, compute_loss)
        check_instance("method", method, Initialization, "a method such as `NIO()`")
        check_run(
            method,
            {
                "engine": engine,
                "microbatch": microbatch,
                "memory_limit": memory_limit,
                "on_step": on_step,
                "autocast": autocast,
                "checkpoint_every": checkpoint_every,
            },
        )
        check_batches(batches, pairs=loss_fn is not None and compute_loss is None)
        schedule = Schedule(ENGINES.get(engine), microbatch)
        layout = batch_layout(cut, batch_dim, targets)
        with closing(Checkpoint(checkpoint, checkpoint_every, all_ranks)) as saved:
            states = saved.random_states()
            with isolated():  # the same random numbers for the problem on every rank
                set_random_state(states[0])
                problem = _problem(
                    model, loss_fn, compute_loss, method, schedule, autocast, all_ranks, layout
                )
                if example is not None:
                    batches = in_place_of_data(example, _outputs(problem), loss_fn, all_ranks.rank)
            saved.identify(problem, method.settings(), schedule.to_json(), memory_limit)
            run = Run(problem, method, schedule, memory_limit, on_step, saved, states)
            run.resume()
            set_random_state(states[all_ranks.rank % len(states)])  # every rank's own for its data
            result = run.go(batches, progress and all_ranks.rank == 0)
            all_ranks.end()
            return result


def _ranks(model: object, method: object) -> Ranks:
    """All processes; only this one if values are drawn without data for an unsharded model."""
    sharded = isinstance(model, nn.Module) and is_sharded_model(model)
    steps = isinstance(method, Initialization) and method.steps > 0
    return ranks() if sharded or steps else Ranks()


def _data(
    batches: Iterable[Batch] | None, example: object, compute_loss: object
) -> Iterable[Batch]:
    """The batches; an empty tuple if ``example`` replaces them."""
    if (batches is None) == (example is None):
        raise TypeError(
            "Pass `batches`, or `example=inputs` for random inputs like these and random labels. "
            f"Found {'neither' if batches is None else 'both'}."
        )
    if example is not None and compute_loss is not None:
        raise TypeError("Random labels are for a `loss_fn`. With `compute_loss`, pass `batches`.")
    return () if batches is None else batches


def _outputs(problem: Problem) -> Callable[[Tensor], Data]:
    """A function that computes the model's output at its start values, for given inputs."""

    def outputs(inputs: Tensor) -> Data:
        with problem.at(problem.unit_scales).session() as session, torch.no_grad():
            return session.output(inputs)

    return outputs


def _problem(
    model: nn.Module,
    loss_fn: LossFunction | None,
    compute_loss: ComputeLoss | None,
    method: Initialization,
    schedule: Schedule,
    autocast: torch.dtype | None,
    ranks: Ranks,
    layout: BatchLayout,
) -> Problem:
    selection = method.selection()
    sharded = isinstance(model, nn.Module) and is_sharded_model(model)
    if schedule.differentiates_graphs(method) or not sharded:
        return Problem(model, loss_fn, compute_loss, selection, autocast, ranks, layout)
    if schedule.microbatch is not None:
        raise ValueError(
            f"`microbatch = {schedule.microbatch}` is not supported for sharded models. Leave it "
            "out; more sub-batches need less memory."
        )
    return ShardedProblem(model, loss_fn, compute_loss, selection, ranks, autocast, layout)


def check_run(method: Initialization, options: RunOptions) -> None:
    """Raise for options of a run that are out of range."""
    check_engine(options.get("engine", AUTO), method)
    if (microbatch := options.get("microbatch")) is not None:
        check_count("microbatch", microbatch, 1)
    if (memory_limit := options.get("memory_limit")) is not None:
        check_count("memory_limit", memory_limit, 1, "of bytes")
    if (on_step := options.get("on_step")) is not None:
        check_callable("on_step", on_step)
    check_autocast(options.get("autocast"))
    check_count("checkpoint_every", options.get("checkpoint_every", 1), 1)


def check_engine(engine: str, method: Initialization | None) -> None:
    """Raise for a name that is no engine, or one that cannot run the method, if there is one."""
    check_choice("engine", engine, (AUTO, *ENGINES))
    if method is not None and engine not in (AUTO, *method.engines):
        raise ValueError(
            f"`engine = {engine!r}` is not supported by `{type(method).__name__}`, which runs on "
            f"{' and '.join(repr(name) for name in method.engines)}."
        )
