"""A model whose parameters are sharded over the ranks: ``fully_shard``, tensor parallelism.

``torch.autograd.grad`` does not support sharded parameters, so gradients are computed by
``.backward()`` and have no graph. The values of a point are this rank's shards, inner products are
summed over the ranks, and every rank takes part in every pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.layout import BatchLayout
from neuroinit.common.process.signals import deliver
from neuroinit.common.tensors import flatten, gram_matrix, to_cpu_double
from neuroinit.distributed.dtensor import (
    fully_sharded,
    is_sharded,
    like_parameter,
    local,
    replicas,
)
from neuroinit.distributed.fsdp import fsdp_modules, reset, reshard
from neuroinit.distributed.guarded_passes import guarded
from neuroinit.distributed.ranks import Ranks
from neuroinit.gradients.passes.trials import agree
from neuroinit.gradients.plan import part_of
from neuroinit.model.borrowing import borrowed
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.parameters.selection import Selection
from neuroinit.model.point import Point
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.model.session import Session


class ShardedSession(Session):
    """Evaluates a sharded model: the point's values are copied into the model's parameters."""

    problem: ShardedProblem

    @classmethod
    @contextmanager
    def open(
        cls, point: Point, second_order: bool, scale_variables: bool, autocast: bool
    ) -> Iterator[Self]:
        """Copy the values of a point into the model; restore the original values afterwards."""
        problem = point.problem
        gradients = {n: p.grad for n, p in problem.parameters.items()}
        reshard(problem.model)
        with borrowed(problem.model, second_order, problem.norm_statistics):
            try:
                _write(problem, point.values)
                yield cls(point, {}, problem.autocast if autocast else None)
            except BaseException:
                reset(problem.model)
                raise
            finally:
                reshard(problem.model)
                _write(problem, problem.original)
                for name, parameter in problem.parameters.items():
                    parameter.grad = gradients[name]

    def _interruptible(self) -> AbstractContextManager[object]:
        """A context in which Ctrl-C is raised on all ranks at the next collective of the pass."""
        deliver()
        return guarded(self.problem.shards)

    def gradient_by(
        self,
        loss: Tensor,
        leaves: Sequence[Tensor | GradientEdge],
        create_graph: bool = False,
        retain_graph: bool = False,
    ) -> tuple[Tensor | None, ...]:
        """This rank's shards of the gradient by leaves, which are values of the point."""
        for parameter in self.problem.parameters.values():
            parameter.grad = None
        with guarded(self.problem.shards):
            torch.autograd.backward(loss, retain_graph=retain_graph)
        names = {id(t): n for n, t in self.point.values.items()}
        return tuple(self._gradient_of(names[id(leaf)]) for leaf in leaves)

    @torch.no_grad()
    def scale_weight(self, module: nn.Module, name: str, factor: float) -> None:
        """Also scale the shard, if the module holds the tensor that FSDP has gathered."""
        super().scale_weight(module, name, factor)
        shard = self.problem.parameters[name]
        if shard is not module._parameters["weight"]:
            local(shard).mul_(factor)

    def _gradient_of(self, name: str) -> Tensor | None:
        """This rank's shard of the gradient by a parameter, averaged over the ranks' batches."""
        parameter, shards = self.problem.parameters[name], self.problem.shards
        found = parameter.grad
        if found is None:
            return None
        if is_sharded(parameter):
            return local(like_parameter(found, parameter)).clone()
        return shards.sum(found) / shards.world

    def losses(
        self, batch: Batch, pieces: Sequence[Interval], one_forward: bool
    ) -> Iterator[Tensor]:
        """The mean loss of each piece over all ranks, with the graph of this rank's samples."""
        if one_forward or not self.problem.traits.outcomes.get("spreadable", False):
            return self.losses_of_all_samples(batch, pieces, one_forward)
        return self.losses_of_own_samples(batch, pieces)

    def losses_of_all_samples(
        self, batch: Batch, pieces: Sequence[Interval], one_forward: bool = False
    ) -> Iterator[Tensor]:
        """As :meth:`losses`; every rank computes all samples."""
        for loss in super().losses(batch, pieces, one_forward):
            yield self._with_common_value(loss, 1.0)

    def losses_of_own_samples(self, batch: Batch, pieces: Sequence[Interval]) -> Iterator[Tensor]:
        """As :meth:`losses`; the samples of every piece are spread over the ranks.

        FSDP averages gradients over the ranks, so the loss of a rank is weighted by its number of
        samples. A rank without samples computes one sample with weight zero.
        """
        shards = self.problem.shards
        for start, stop in pieces:
            own = part_of(list(range(start, stop)), shards.rank, shards.world)
            first = own[0] if own else start
            weight = len(own) * shards.world / (stop - start)
            part = self.problem.layout.cut(batch, first, first + max(1, len(own)))
            yield self._with_common_value(self.loss(part, self.problem.seed + start), weight)

    def _with_common_value(self, loss: Tensor, weight: float) -> Tensor:
        """The weighted loss with the mean of all ranks as its value: finite on all or on none."""
        shards, weighted = self.problem.shards, loss * weight
        value = shards.sum(to_cpu_double(weighted)) / shards.world
        return weighted + (value.to(loss) - weighted.detach())


class ShardedProblem(Problem):
    """A sharded model and its loss.

    Args:
        model: A module with DTensor parameters.
        shards: The ranks that hold the shards.
        loss_fn, compute_loss, selection, autocast, layout: As for :class:`Problem`.

    Attributes:
        copies: Parameter name -> number of ranks that hold the same entries.
    """

    session_type = ShardedSession
    sharded = True

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        compute_loss: ComputeLoss | None,
        selection: Selection,
        shards: Ranks,
        autocast: torch.dtype | None,
        layout: BatchLayout,
    ) -> None:
        self.shards = shards
        super().__init__(model, loss_fn, compute_loss, selection, autocast, layout=layout)
        for trait in ("independent", "independent if ragged", "separable"):
            self.traits.note(trait, False)
        self.traits.note("parameters in modules", True)  # values are copied into the parameters
        self.traits.seed_passes()
        self.copies = {n: replicas(p, shards.world) for n, p in self.parameters.items()}

    def _values(self) -> dict[str, Tensor]:
        """This rank's shards."""
        return {n: local(p).detach().clone() for n, p in self.parameters.items()}

    def _fresh_values(self, name: str, draw: Draw) -> Tensor:
        """This rank's shard of the values."""
        return local(draw.like(self.parameters[name].detach()))

    def _all_zero(self) -> list[str]:
        """Names of trainable tensors whose shards are all zero on all ranks."""
        found = [float(self.start[n].any()) for n in self.trainable]
        counts = self.shards.sum(torch.tensor(found, dtype=torch.float64, device="cpu"))
        return [n for n, count in zip(self.trainable, counts.tolist(), strict=True) if not count]

    def sum_over_shards(self, values: Tensor, names: Sequence[str]) -> Tensor:
        """Sum the values of every parameter's shards (one row per name) over the ranks."""
        shares = [1 / self.copies[n] for n in names]
        weights = torch.tensor(shares, dtype=torch.float64, device="cpu")
        shape = (-1, *[1] * (values.dim() - 1))
        return self.shards.sum(to_cpu_double(values) * weights.reshape(shape))

    def norm(self, gradient: Tensor) -> Tensor:
        """The norm of a flat gradient; every rank passes its shards."""
        return self.norms(gradient[None])[0]

    def norms(self, gradients: Tensor) -> Tensor:
        """The norm of every row; every rank passes its shards."""
        return self.gram(gradients).diagonal().sqrt()

    def gram(self, gradients: Tensor) -> Tensor:
        """The Gram matrix of the rows; every rank passes its shards."""
        names = self.differentiated
        parts = torch.split(gradients, [self.start[n].numel() for n in names], 1)
        grams = torch.stack([gram_matrix(part) for part in parts])
        return self.sum_over_shards(grams, names).sum(0)

    def by_scales(self, gradient: Tensor) -> Tensor:
        """``<W_k, gradient_k>`` over all shards, for every scale."""
        return self.sum_over_shards(super().by_scales(gradient), self.scaled)

    def try_spreading(self, batch: Batch) -> None:
        """Test once whether the samples of a batch can be spread over the ranks."""
        self.traits.find(
            "spreadable", lambda: self._may_spread() and self._spreading_is_exact(batch)
        )

    def _may_spread(self) -> bool:
        """Whether the model is data-parallel, and no module normalizes over the batch."""
        if not fsdp_modules(self.model) or self.batch_norms:
            return False
        return fully_sharded(self.parameters.values(), self.shards.world)

    def _spreading_is_exact(self, batch: Batch) -> bool:
        size = min(self.layout.size(batch), 2 * self.shards.world)
        few, start = self.layout.cut(batch, 0, size), self.at(self.unit_scales)

        def norms(shards: Sequence[Tensor]) -> list[float]:  # of all ranks, on every rank
            return [float(self.norm(shard)) for shard in shards]

        return agree(start, few, self._spread_and_not, norms=norms)

    def _spread_and_not(self, point: Point, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """The gradient with the samples spread over the ranks, and with all samples on each."""
        piece, names = (0, self.layout.size(batch)), self.differentiated
        with ShardedSession.open(point, False, False, autocast=True) as session:
            spread, whole = (
                flatten(session.gradient(loss, names))
                for losses in (session.losses_of_own_samples, session.losses_of_all_samples)
                for loss in losses(batch, [piece])
            )
        return [spread], [whole]


@torch.no_grad()
def _write(problem: Problem, values: dict[str, Tensor]) -> None:
    for name, parameter in problem.parameters.items():
        local(parameter).copy_(values[name])
