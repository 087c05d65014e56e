"""A model that holds the values of a point for a while: losses and gradients there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval, map_tensors
from neuroinit.common.random_state import seed_all
from neuroinit.common.signals import Where, allowed
from neuroinit.common.tensors import (
    at_least_float32,
    dot,
    sum_dtype,
    to_cpu_double,
    zeros_if_missing,
)
from neuroinit.kernels.context import KernelContext, PieceParameters
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from neuroinit.model.borrowing import borrowed
from neuroinit.model.finite import check_loss
from neuroinit.model.point import Point
from neuroinit.model.validation import mean_loss


class Session:
    """Evaluates a model at a point. Open one with :meth:`Point.session`.

    Every evaluation starts from the same buffers and random numbers, on every engine.

    Args:
        point: The values that the model holds.
        scale_variables: Parameter name -> scalar tensor equal to one that stands for its scale.
        autocast: Dtype of the forward passes; ``None`` for the model's own.
    """

    def __init__(
        self, point: Point, scale_variables: dict[str, Tensor], autocast: torch.dtype | None
    ) -> None:
        self.point, self.problem = point, point.problem
        self.scale_variables, self.autocast = scale_variables, autocast
        weights = {id(point.values[n]): scale for n, scale in scale_variables.items()}
        self._context = KernelContext(weights)

    @classmethod
    @contextmanager
    def open(
        cls, point: Point, second_order: bool, scale_variables: bool, autocast: bool
    ) -> Iterator[Session]:
        """Borrow the model: the point's values, training mode, dropout off; then give it back."""
        problem = point.problem
        with borrowed(problem.model, second_order):
            if "_original_forward" in vars(problem.model):  # Accelerate's wrapper: autocast is on
                problem.model.forward = problem.model._original_forward  # type: ignore[assignment]
            for module, key, name in problem.places:
                module._parameters[key] = point.values[name]  # type: ignore[assignment]
            variables = _scale_variables(point) if scale_variables else {}
            yield cls(point, variables, problem.autocast if autocast else None)

    # -- losses ------------------------------------------------------------------------------------

    def loss(self, batch: Batch, seed: int | None = None) -> Tensor:
        """The mean loss of a batch.

        Args:
            batch: A prepared batch.
            seed: Of the random numbers in the forward pass; the problem's own by default.
        """
        losses = self._losses(batch, self.problem.seed if seed is None else seed)
        return mean_loss(losses, self.problem.layout.size(batch))

    def loss_value(self, batch: Batch) -> float:
        """The mean loss of a batch as a number; no graph is kept."""
        try:
            with torch.no_grad():
                return float(self.loss(batch))
        except RuntimeError:  # the loss takes a gradient itself; any other error is raised again
            return float(self.loss(batch).detach())

    def losses(
        self, batch: Batch, pieces: Sequence[Interval], one_forward: bool
    ) -> Iterator[Tensor]:
        """The mean loss of each piece of a batch, one graph at a time.

        Args:
            batch: A prepared batch.
            pieces: Which samples, as ``(start, stop)``.
            one_forward: Take slices of one forward pass of the whole batch.
        """
        problem = self.problem
        if not one_forward:
            for start, stop in pieces:
                yield self.loss(problem.layout.cut(batch, start, stop), problem.seed + start)
        elif problem.compute_loss is None:
            output, target = self._forward(batch, problem.seed)
            for start, stop in pieces:
                parts = (problem.layout.cut(x, start, stop) for x in (output, target))
                yield mean_loss(problem.loss_fn(*parts), stop - start)
        else:
            values = self._losses(batch, problem.seed)
            if values.dim() != 1 or len(values) != problem.layout.size(batch):
                raise ValueError(
                    "Statistics of the whole batch need a `compute_loss` that returns one loss a "
                    f"sample. Found a loss of shape {tuple(values.shape)} for "
                    f"{problem.layout.size(batch)} samples. Return unreduced losses, or use "
                    "`batch_stats='sub-batch'`."
                )
            for start, stop in pieces:
                yield values[start:stop].mean()

    def output(self, inputs: Any) -> Any:
        """The model's output for a batch of inputs."""
        return self._forward(self.problem.prepare((inputs, None)), self.problem.seed)[0]

    def run(self, batch: Batch) -> None:
        """A forward pass without a result; without a loss a batch may be inputs alone."""
        if self.problem.has_loss:
            self._losses(batch, self.problem.seed)
        elif isinstance(batch, Tensor):
            self._forward((batch, None), self.problem.seed)
        elif isinstance(batch, (tuple, list)) and len(batch) in (1, 2):
            self._forward((batch[0], None), self.problem.seed)
        else:
            raise TypeError(
                f"A batch of type `{type(batch).__name__}` is neither inputs nor `(inputs, "
                "targets)`. Say how the model is called, for example "
                "`compute_loss=lambda model, batch: model(**batch).loss`."
            )

    def _losses(self, batch: Batch, seed: int) -> Tensor:
        """What the user's loss returns: a scalar, or one loss a sample."""
        if self.problem.compute_loss is None:
            output, target = self._forward(batch, seed)
            return self.problem.loss_fn(output, target)
        batch = self._reset(batch, seed)
        with ReplacedLayers(self._context), self._autocast(), self._interruptible():
            return self.problem.compute_loss(self.problem.model, batch)

    def _forward(self, batch: Batch, seed: int) -> tuple[Any, Any]:
        inputs, target = self._reset(batch, seed)
        with ReplacedLayers(self._context), self._autocast(), self._interruptible():
            output = self.problem.model(inputs)
        return (map_tensors(at_least_float32, output) if self.autocast else output), target

    def _interruptible(self) -> AbstractContextManager[None]:
        """Ctrl-C is handled at once where the user's own code runs."""
        return allowed(Where.USER_CODE)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.problem.device.type, self.autocast, cache_enabled=False)

    def _reset(self, batch: Batch, seed: int) -> Any:
        """Copies of the batch and of the buffers, and the random numbers of a seed."""
        seed_all(seed)
        for module, key, buffer in self.problem.buffers:
            module._buffers[key] = buffer.clone()
        return map_tensors(torch.clone, batch)

    # -- derivatives -------------------------------------------------------------------------------

    def gradient(
        self,
        loss: Tensor,
        names: Sequence[str],
        create_graph: bool = False,
        retain_graph: bool = False,
    ) -> tuple[Tensor, ...]:
        """The gradient of a loss by parameters; zeros for those that the loss does not use.

        Raises:
            NonFiniteError: If the loss is not finite.
            ValueError: If the loss has no graph.
        """
        check_loss(loss)
        tensors = self.point.tensors(names)
        found = self.gradient_by(loss, tensors, create_graph, retain_graph)
        return zeros_if_missing(found, tensors)

    def gradient_by(
        self,
        loss: Tensor,
        leaves: list[Tensor],
        create_graph: bool = False,
        retain_graph: bool = False,
    ) -> tuple[Tensor | None, ...]:
        """The gradient of a loss by any leaves; ``None`` for those that the loss does not use."""
        return differentiate([loss], leaves, None, create_graph, retain_graph, self._context)

    def second_backward(
        self, outputs: Sequence[Tensor], vectors: Sequence[Tensor], retain_graph: bool = False
    ) -> Tensor:
        """``<W_k, d(sum_i <outputs_i, vectors_i>)/dtheta_k>`` for every scale ``w_k``.

        Args:
            outputs: Gradients; those without a graph do not count.
            vectors: Their directions, of the same shapes.
            retain_graph: Keep the graph for a further call.

        Returns:
            Float64 on the CPU, shape ``(len(problem.scaled),)``.
        """
        problem = self.problem
        live = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
        total = dict.fromkeys(problem.scaled, _ZERO)
        if live:
            inputs = [*self.point.tensors(problem.scaled), *self.scale_variables.values()]
            self._context.second_backward = True
            try:
                found = differentiate(
                    [o for o, _ in live],
                    inputs,
                    [v for _, v in live],
                    False,
                    retain_graph,
                    self._context,
                )
            finally:
                self._context.second_backward = False
            for name, g in zip(problem.scaled, found, strict=False):
                if g is not None:
                    total[name] = to_cpu_double(dot(problem.start[name], g))
            by_variables = found[len(problem.scaled) :]
            for name, g in zip(self.scale_variables, by_variables, strict=True):
                if g is not None:
                    by_scale = to_cpu_double(g) / self.point.scales[name]
                    total[name] = total[name] + by_scale
        return torch.stack(list(total.values()))

    # -- several pieces of a batch in one pass -----------------------------------------------------

    def piece_parameters(self, pieces: Sequence[Interval], names: Sequence[str]) -> PieceParameters:
        """Leaves whose gradients are those of consecutive pieces.

        A scaled weight without a scale variable has none: its derivative is taken by the weight.
        """
        first, variables = pieces[0][0], self.scale_variables
        without = {n for n in self.problem.scaled if n not in variables} if variables else set()
        leaves = {
            id(t): t.detach().expand(len(pieces), *t.shape).requires_grad_()
            for n, t in zip(names, self.point.tensors(names), strict=True)
            if t.dim() < 2 or n not in without
        }
        intervals = tuple((start - first, stop - first) for start, stop in pieces)
        return PieceParameters(intervals, leaves)

    @contextmanager
    def separating(self, pieces: PieceParameters) -> Iterator[None]:
        """Passes inside keep the gradients of pieces apart."""
        self._context.pieces = pieces
        try:
            yield
        finally:
            self._context.pieces = None


_ZERO = torch.zeros((), dtype=torch.float64, device="cpu")


def _scale_variables(point: Point) -> dict[str, Tensor]:
    """A scalar one for every scale that is not zero; others are differentiated by their weight."""
    problem = point.problem
    return {
        n: torch.ones(
            (), dtype=sum_dtype(problem.start[n]), device=problem.device, requires_grad=True
        )
        for n in problem.scaled
        if point.scales.get(n, 1.0) != 0
    }
