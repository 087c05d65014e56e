"""Engines: how an objective of the sub-batch gradients is differentiated by the scales.

    gradients -> Gram matrix -> objective -> Hessian-vector products

With ``v_d`` the derivative of the objective ``Phi`` by the gradient ``g_d`` of sub-batch ``d``,

    dPhi/dw_k = < W_k , [ sum_d H_d v_d ]_k >,

so that no autograd graph has to span two sub-batches. :class:`Keep` holds the first-order graphs of
all pieces, :class:`Stream` one at a time. Both are exact.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.errors import named_operator
from neuroinit.common.tensors import to_cpu_double, weighted_rows
from neuroinit.gradients.collectors import AllGradients, Collector, MeanDirection, Objective
from neuroinit.gradients.directions import Directions
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.passes.first_order import piece_rows, sub_batch_gradients
from neuroinit.gradients.passes.pieces import Pass
from neuroinit.gradients.passes.planned import passes_over, streamed_pieces
from neuroinit.gradients.passes.second_order import (
    backward_along,
    block_of,
    runs_of,
    second_backward,
)
from neuroinit.gradients.plan import Plan, share_of
from neuroinit.gradients.streamed_products import (
    known_products,
    rolling_products,
    simple_products,
)
from neuroinit.model.finite import check_derivative
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem

HELD_PIECES = 8  # `stream` holds the gradients of this many overlapping pieces, or of more if small


@dataclass(frozen=True)
class Derivative:
    """An objective and its derivative by the scales.

    Args:
        value: The objective ``Phi``.
        gradient: ``dPhi/dw_k`` in the order of ``problem.scaled``, float64 on the CPU.
        moments: Norms and GradCosine of the sub-batch gradients.
        loss: Mean of the sub-batch losses.
    """

    value: float
    gradient: Tensor
    moments: Moments
    loss: float


class Engine(abc.ABC):
    """A way to differentiate by the scales.

    Attributes:
        name: The value of ``engine=`` that selects it.
        exact: Whether the derivative is exact up to rounding.
        keeps_graphs: Whether the first-order graphs of all pieces are held at once.
        held_gradients: Most gradients that statistics hold at once; ``None`` for all.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    keeps_graphs: ClassVar[bool] = False
    held_gradients: ClassVar[int | None] = None

    def prepare(self, problem: Problem, batch: Batch, plan: Plan, scales: Tensor) -> None:
        """Called once before the first step, with the batch, plan and scales of that step."""
        return

    @abc.abstractmethod
    def derivative(
        self, point: Point, batch: Batch, plan: Plan, objective: Objective, gram: bool = False
    ) -> Derivative:
        """An objective of the sub-batch gradients and its derivative by the scales.

        Args:
            point: The parameter values at which the model is evaluated.
            batch: A prepared batch.
            plan: Its pieces.
            objective: Function of :class:`Moments`.
            gram: The objective reads ``moments.gram``, for which all ``D`` gradients are held.
        """


class ExactEngine(Engine):
    """Base of :class:`Keep` and :class:`Stream`: splits work over ranks, checks, names errors."""

    def derivative(
        self, point: Point, batch: Batch, plan: Plan, objective: Objective, gram: bool = False
    ) -> Derivative:
        """See :meth:`Engine.derivative`; every rank computes its share of the sub-batches."""
        problem, count = point.problem, len(plan.weights)
        share = share_of(plan, problem.ranks.rank, problem.ranks.world)
        collector = (AllGradients if gram else MeanDirection)(problem, count, share)
        with problem.ranks.together(), named_operator():
            if share.sub_batches:
                found = self._derivative(point, batch, share.plan, objective, collector)
            else:  # there are more ranks than sub-batches
                known = collector.evaluate(objective)
                nothing = torch.zeros_like(problem.unit_scales)
                found = Derivative(known.value, nothing, known.moments, 0.0)
            part = found.loss * len(share.sub_batches) / count
            loss = torch.tensor([part], dtype=torch.float64, device="cpu")
            *by_scale, loss = problem.ranks.sum(torch.cat([found.gradient, loss]))
            return replace(found, gradient=torch.stack(by_scale), loss=float(loss))

    def _derivative(
        self, point: Point, batch: Batch, plan: Plan, objective: Objective, collector: Collector
    ) -> Derivative:
        found, by_scale = self._differentiate(point, batch, plan, objective, collector)
        by_scale = check_derivative(to_cpu_double(by_scale), point.problem.scaled)
        loss = float((plan.weights @ found.losses).mean())
        return Derivative(found.value, by_scale, found.moments, loss)

    @abc.abstractmethod
    def _differentiate(
        self, point: Point, batch: Batch, plan: Plan, objective: Objective, collector: Collector
    ) -> tuple[Directions, Tensor]:
        """The objective with the directions, and its derivative by the scales on the device."""


class Keep(ExactEngine):
    """Holds the graphs of all pieces, and differentiates all of them in one backward: fastest."""

    name = "keep"
    keeps_graphs = True

    def _differentiate(
        self, point: Point, batch: Batch, plan: Plan, objective: Objective, collector: Collector
    ) -> tuple[Directions, Tensor]:
        problem = point.problem
        samples, names = plan.microbatch or plan.samples, problem.differentiated
        with point.session(second_order=True, scale_variables=True) as session:
            passes = list(passes_over(session, batch, plan, names, samples, create_graph=True))
            losses = [loss for first in passes for loss in first.losses]
            runs = _runs(plan, passes, collector)
            if runs and isinstance(collector, MeanDirection):
                blocks = [block_of(run) for run in runs]
                collector.add_blocks(blocks)
                evaluated = collector.evaluate(objective, losses)
                along = evaluated.of_blocks(0, blocks)
                return evaluated, backward_along(session, passes[0], along, runs)
            rows = [_rows(passes)]
            found, directions = _directions(plan, rows, objective, collector, losses)
            return found, second_backward(session, passes, directions)


class Stream(ExactEngine):
    """A first-order pass for the objective, then one graph at a time: least memory."""

    name = "stream"
    held_gradients = 4

    def _differentiate(
        self, point: Point, batch: Batch, plan: Plan, objective: Objective, collector: Collector
    ) -> tuple[Directions, Tensor]:
        names, losses = point.problem.differentiated, list[Tensor]()
        products: Iterator[Tensor]
        if plan.simple or len(plan.pieces) > max(HELD_PIECES, streamed_pieces(point.problem)):
            with point.session() as session:
                for gradient in sub_batch_gradients(session, batch, plan, names, losses):
                    collector.add(gradient[None])
            found: Directions = collector.evaluate(objective, losses)
            compute = simple_products if plan.simple else rolling_products
            with point.session(second_order=True, scale_variables=True) as session:
                products = compute(session, batch, plan, found)
                return found, sum(products, torch.zeros((), device=point.problem.device))
        with point.session() as session:
            rows = [torch.cat(list(piece_rows(session, batch, plan, names, losses)))]
        found, directions = _directions(plan, rows, objective, collector, losses)
        with point.session(second_order=True, scale_variables=True) as session:
            products = known_products(session, batch, plan, directions)
            return found, sum(products, torch.zeros((), device=point.problem.device))


class Unused(Stream):
    """What a method gets that differentiates no gradients; users cannot select it."""

    name = "none"


def _runs(plan: Plan, passes: list[Pass], collector: Collector) -> list[list[Tensor]]:
    """Groups of gradients, so that large ones are not copied; empty if one matrix is used."""
    if not plan.simple or len(passes) > 1 or passes[0].pieces is None:
        return []
    runs = runs_of(passes[0].gradients) if collector.problem.ranks.alone else []
    return runs if len(runs) > 1 else []


def _rows(passes: list[Pass]) -> Tensor:
    rows = [first.rows for first in passes]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _directions(
    plan: Plan,
    rows: list[Tensor],
    objective: Objective,
    collector: Collector,
    losses: list[Tensor],
) -> tuple[Directions, Tensor]:
    """The objective, and the direction of every piece, from the gradients of all pieces.

    Args:
        plan: The weights of the pieces.
        rows: One matrix, the gradients of the pieces; the list is emptied to free memory early.
        objective: Function of :class:`Moments`.
        collector: Receives the gradients of the sub-batches.
        losses: The losses of the pieces.
    """
    gradients = rows.pop()
    if not plan.simple:
        gradients = weighted_rows(plan.weights, gradients)
    collector.add(gradients)
    found = collector.evaluate(objective, losses)
    directions = found.of(0, gradients)
    return found, directions if plan.simple else weighted_rows(plan.weights.T, directions)
