"""A session: the model holds the values of a point; computes losses and gradients there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from neuroinit.common.batches import Interval
from neuroinit.common.graphs import graph_nodes
from neuroinit.common.tensors import dot, sum_dtype, zeros_if_missing
from neuroinit.kernels.context import PieceParameters, Recorded
from neuroinit.kernels.function_mode import differentiate, differentiate_graphs
from neuroinit.model.borrowing import borrowed
from neuroinit.model.evaluation import Evaluation
from neuroinit.model.finite import check_graph
from neuroinit.model.point import Point


class Session(Evaluation):
    """Evaluates a model at a point, and differentiates. Open one with :meth:`Point.session`."""

    @classmethod
    @contextmanager
    def open(
        cls, point: Point, second_order: bool, scale_variables: bool, autocast: bool
    ) -> Iterator[Self]:
        """Put the point's values in the model, training mode without dropout; then restore it."""
        problem = point.problem
        with borrowed(problem.model, second_order, problem.norm_statistics):
            if "_original_forward" in vars(problem.model):  # Accelerate's wrapper: autocast is on
                problem.model.forward = problem.model._original_forward  # type: ignore[assignment]
            for module, key, name in problem.places:  # torch's type asks for a `Parameter`
                module._parameters[key] = point.values[name]  # type: ignore[assignment]
            variables = _scale_variables(point) if scale_variables else {}
            yield cls(point, variables, problem.autocast if autocast else None)

    @torch.no_grad()  # a model may enable gradients in its forward pass
    def scale_weight(self, module: nn.Module, name: str, factor: float) -> None:
        """Multiply the weight of a module in place; ``name`` is the parameter's name."""
        weight = module._parameters["weight"]
        if weight is not None:
            weight.mul_(factor)

    # -- derivatives -------------------------------------------------------------------------------

    def gradient(
        self,
        loss: Tensor,
        names: Sequence[str],
        create_graph: bool = False,
        retain_graph: bool = False,
    ) -> tuple[Tensor, ...]:
        """The gradient of a loss by parameters; zeros for those that the loss does not use.

        The caller checks whether it is finite, because this check synchronizes with the device.

        Raises:
            ValueError: If the loss has no graph, or the model does not use the point's values.
        """
        check_graph(loss)
        self.problem.traits.find("parameters in modules", lambda: self._reads_modules(loss))
        tensors = self.point.tensors(names)
        found = self.gradient_by(loss, tensors, create_graph, retain_graph)
        return zeros_if_missing(found, tensors)

    def _reads_modules(self, loss: Tensor) -> bool:
        """Raise if the graph of a loss has a parameter in place of the point's value."""
        replaced = {id(p): n for n, p in self.problem.parameters.items()}
        for value in self.point.values.values():
            replaced.pop(id(value), None)
        for node in graph_nodes([loss]):
            name = replaced.get(id(getattr(node, "variable", None)))
            if name is not None:
                raise ValueError(
                    f"The forward pass uses `{name}` through another reference than the attribute "
                    "of the module that holds it, so it cannot be scaled there. Read it as an "
                    "attribute of its module in `forward`, or keep such tensors in an "
                    "`nn.ParameterList`."
                )
        return True

    def gradient_by(
        self,
        loss: Tensor,
        leaves: Sequence[Tensor | GradientEdge],
        create_graph: bool = False,
        retain_graph: bool = False,
    ) -> tuple[Tensor | None, ...]:
        """The gradient of a loss by any leaves, as autograd returns it.

        It is ``None`` for leaves that the loss does not use, and sparse for sparse embeddings.
        """
        if self._plain:
            tensors = cast(Sequence[Tensor], leaves)  # edges are those of recorded layers
            keeps = retain_graph or create_graph
            return torch.autograd.grad(loss, tensors, None, keeps, create_graph, allow_unused=True)
        context = self._context
        return differentiate([loss], leaves, None, create_graph, retain_graph, context, dense=False)

    def second_backward(
        self, outputs: Sequence[Tensor], vectors: Sequence[Tensor], retain_graph: bool = False
    ) -> Tensor:
        """``<W_k, d(sum_i <outputs_i, vectors_i>)/dtheta_k>`` for every scale ``w_k``.

        Args:
            outputs: Gradients; those without a graph are ignored.
            vectors: Their directions, of the same shapes.
            retain_graph: Keep the graph for a further call.

        Returns:
            Float64 on the device of the model, shape ``(len(problem.scaled),)``.
        """
        problem = self.problem
        inputs = [*self.point.tensors(problem.scaled), *self.scale_variables.values()]
        self._context.second_backward = True
        try:
            found = differentiate_graphs(
                outputs, inputs, vectors, False, retain_graph, self._context
            )
        finally:
            self._context.second_backward = False
        return self._by_scales(found)

    def _by_scales(self, found: Sequence[Tensor | None]) -> Tensor:
        """The derivative by the scales, from those by scaled tensors and by scale variables."""
        problem, scales = self.problem, self.point.scales
        zero = torch.zeros(
            (), dtype=sum_dtype(problem.start[problem.trainable[0]]), device=problem.device
        )
        by_tensor = dict(zip(problem.scaled, found, strict=False))
        variables = dict(zip(self.scale_variables, found[len(problem.scaled) :], strict=True))
        own, common = [], []
        for name in problem.scaled:
            g, by_variable = by_tensor[name], variables.get(name)
            own.append(zero if g is None else dot(problem.start[name], g).to(zero))
            common.append(zero if by_variable is None else by_variable.to(zero))
        inverse = torch.tensor(
            [1 / scales[n] if variables.get(n) is not None else 0.0 for n in problem.scaled],
            dtype=zero.dtype,
            device="cpu",
        )
        return torch.stack(own) + torch.stack(common) * inverse.to(zero.device)

    # -- several pieces of a batch in one pass -----------------------------------------------------

    def piece_parameters(
        self, pieces: Sequence[Interval], names: Sequence[str], record: bool = False
    ) -> PieceParameters:
        """Leaves that receive the gradient of every piece separately; pieces are consecutive.

        A scaled weight without a scale variable gets no leaf: it is differentiated by itself. With
        ``record`` some layers are left to torch; only for a pass without ``create_graph``.
        """
        variables = self.scale_variables
        without = {n for n in self.problem.scaled if n not in variables} if variables else set()
        leaves = {
            id(t): t.detach().expand(len(pieces), *t.shape).requires_grad_()
            for n, t in zip(names, self.point.tensors(names), strict=True)
            if t.dim() < 2 or n not in without
        }
        calls = None if self.problem.compute_loss is None else list[tuple[Tensor, Tensor]]()
        recorded = Recorded() if record and not variables else None
        return PieceParameters(consecutive(pieces), leaves, losses=calls, recorded=recorded)

    @contextmanager
    def separating(self, pieces: PieceParameters) -> Iterator[None]:
        """A context in which passes compute the gradient of every piece separately."""
        self._context.pieces = pieces
        try:
            yield
        finally:
            self._context.pieces = None


def consecutive(pieces: Sequence[Interval]) -> tuple[Interval, ...]:
    """Intervals of the same lengths, one after the other from 0."""
    edges = itertools.accumulate((stop - start for start, stop in pieces), initial=0)
    return tuple(itertools.pairwise(edges))


def _scale_variables(point: Point) -> dict[str, Tensor]:
    """A scalar one for every nonzero scale; zero scales are differentiated by their weight."""
    problem = point.problem
    names = [n for n in problem.scaled if point.scales.get(n, 1.0) != 0]
    if not names:
        return {}
    dtype = sum_dtype(problem.start[names[0]])
    ones = torch.ones(len(names), dtype=dtype, device=problem.device).unbind()
    return {n: one.detach().requires_grad_() for n, one in zip(names, ones, strict=True)}
