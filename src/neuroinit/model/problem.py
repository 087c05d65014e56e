"""A model, its loss and its data as pure functions of the scaled parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from neuroinit.common.batches import Interval, batch_size, cut, map_tensors
from neuroinit.common.errors import warn
from neuroinit.common.random_state import seed_all
from neuroinit.common.tensors import HALF, dot, gram_matrix, narrow, unflatten, wide, widen
from neuroinit.distributed.dtensor import is_sharded
from neuroinit.distributed.ranks import ALONE, Ranks
from neuroinit.kernels.context import KernelContext, PieceParameters
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from neuroinit.model.borrowing import Buffers, borrowed
from neuroinit.model.fresh_values import new_seed
from neuroinit.model.selection import Selection, places, trainable, unwrap
from neuroinit.model.validation import (
    check_callables,
    check_finite,
    check_pair,
    check_parameters,
    mean_loss,
)

LossFunction = Callable[[Any, Any], Tensor]
ComputeLoss = Callable[[Any, Any], Tensor]
NEARLY_ZERO = (1e-8, 1e-2)  # what parameters are multiplied by; the second where it is too little


class Problem:
    """A model and its loss, seen as functions of the scaled parameters ``theta``.

    Nothing is stored on the model. While a :meth:`session` is open the model holds other tensors;
    when it closes, for whatever reason, the model is as it was.

    Args:
        model: Any module; wrappers are looked through.
        loss_fn: ``loss_fn(output, target)`` for batches ``(inputs, targets)``.
        compute_loss: ``compute_loss(model, batch)`` for any other kind of batch.
        selection: Which parameters take part.
        autocast: Run the model's forward passes under autocast to this dtype.
        ranks: The processes that share the work on every batch.

    Attributes:
        independence: Whether samples don't see each other, of batches that are not ragged and of
            those that are; what has not been tried yet is missing. See
            :mod:`neuroinit.gradients.independence`.
        tells_pieces: Whether one pass over several pieces can keep them apart; ``None`` if that has
            not been tried yet. See :mod:`neuroinit.gradients.pieces`.
    """

    sharded: ClassVar[bool] = False

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        compute_loss: ComputeLoss | None = None,
        selection: Selection | None = None,
        autocast: torch.dtype | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        selection = selection or Selection()
        check_callables(model, loss_fn, compute_loss, selection.needs_loss)
        self.model, self.ranks, self.autocast = unwrap(model), ranks, autocast
        self.has_loss = loss_fn is not None or compute_loss is not None
        self._loss_fn: LossFunction = loss_fn or F.cross_entropy
        self.compute_loss = compute_loss
        self._check()
        self.parameters = dict(self.model.named_parameters())
        self.trainable = trainable(self.model)
        self.original = {n: widen(p.detach()) for n, p in self.parameters.items()}
        self.drawn = selection.draws(self.model) if selection.draws else {}
        check_finite({n: p for n, p in self.parameters.items() if n not in self.drawn})
        fresh = {n: draw.like(self.original[n]) for n, draw in self.drawn.items()}
        self.start = self._theta = {**self.original, **fresh}
        self.device = self.start[self.trainable[0]].device
        self.zeros = [n for n in self.trainable if not self.start[n].any()]
        self.scaled = selection.scaled(self.model, self.zeros, self.drawn)
        self.differentiated = selection.differentiated(self.model)
        self.seed = new_seed()
        self.independence: dict[bool, bool] = {}
        self.tells_pieces: bool | None = None
        self.factors: dict[str, float] = {}
        self.marks: dict[str, Tensor] = {}
        self._places, self._context = places(self.model), KernelContext()
        self._buffers: Buffers = []
        self._said: set[str] = set()

    def _check(self) -> None:
        """A model that cannot be differentiated by its parameters, or has none to train."""
        check_parameters(self.model)
        if not self.sharded and any(is_sharded(p) for p in self.model.parameters()):
            raise ValueError(
                "The model is sharded (DTensor parameters), where `torch.autograd.grad` does not "
                "work. Optimize it before `fully_shard` or `parallelize_module`, which is exact; "
                "or pass `engine='differences'` to `optimize`, which is not, see "
                "docs/distributed.md."
            )
        waiting = [n for n, m in self.model.named_modules() if isinstance(m, nn.SyncBatchNorm)]
        if waiting and not self.ranks.alone:
            raise ValueError(
                f"`{waiting[0]}` is a SyncBatchNorm, which waits for all ranks, and each computes "
                "sub-batches of its own. Optimize before `convert_sync_batchnorm`."
            )
        if not trainable(self.model):
            raise ValueError(
                "The model has no trainable parameter: nothing to scale. "
                "Set `requires_grad=True` on the parameters that are to be trained."
            )

    def warn_once(self, message: str) -> None:
        """Warn of something that would be said again with every batch."""
        if message not in self._said:
            self._said.add(message)
            warn(message)

    # -- the scaled parameters ---------------------------------------------------------------

    def place(self, scales: Tensor, replaced: dict[str, Tensor] | None = None) -> None:
        """Make ``theta = {w_k W_k}`` the parameters of the next session; fresh autograd leaves.

        Args:
            scales: One scale for every name in ``scaled``.
            replaced: Tensors that stand in for some ``W_k``.
        """
        theta = {**self.start, **(replaced or {})}
        self.factors = factors = dict(zip(self.scaled, scales.tolist(), strict=True))
        self._theta = {
            n: (t.detach() * factors.get(n, 1.0)).requires_grad_(self.parameters[n].requires_grad)
            for n, t in theta.items()
        }

    def hold(self, values: dict[str, Tensor]) -> None:
        """Make tensors of one's own the parameters of the next session, by name."""
        self._theta = {**self.start, **values}

    @contextmanager
    def moved(self, steps: dict[str, Tensor]) -> Iterator[None]:
        """Sessions inside see ``theta + step``, fresh leaves again, and ``theta`` afterwards."""
        held = self._theta
        self._theta = {
            n: (t.detach() + steps[n] if n in steps else t.detach()).requires_grad_(t.requires_grad)
            for n, t in held.items()
        }
        try:
            yield
        finally:
            self._theta = held

    @property
    def unit_scales(self) -> Tensor:
        """The scales that change nothing."""
        return torch.ones(len(self.scaled), dtype=torch.float64, device="cpu")

    def theta(self, names: Sequence[str]) -> list[Tensor]:
        """The scaled parameters by name, as autograd leaves."""
        return [self._theta[n] for n in names]

    # -- the loss --------------------------------------------------------------------------------

    def losses(self, batch: Any, pieces: Sequence[Interval], whole: bool) -> Iterator[Tensor]:
        """The mean loss of each piece, one graph at a time; with ``whole`` of one forward pass."""
        if not whole:
            for start, stop in pieces:
                yield self.loss(cut(batch, start, stop), self.seed + start)
        elif self.compute_loss is None:
            output, target = self._forward(batch, self.seed)
            for start, stop in pieces:
                parts = cut(output, start, stop), cut(target, start, stop)
                yield mean_loss(self._loss_fn(*parts), stop - start)
        else:
            values = self._evaluate(batch, self.seed)
            if values.dim() != 1 or len(values) != batch_size(batch):
                raise ValueError(
                    "Statistics of the whole batch need a `compute_loss` that returns one loss a "
                    f"sample. Found a loss of shape {tuple(values.shape)} for "
                    f"{batch_size(batch)} samples. Return unreduced losses, or use "
                    "`batch_stats='sub-batch'`."
                )
            for start, stop in pieces:
                yield values[start:stop].mean()

    def loss(self, batch: Any, seed: int | None = None) -> Tensor:
        """The mean loss of a batch at the scaled parameters."""
        return mean_loss(
            self._evaluate(batch, self.seed if seed is None else seed), batch_size(batch)
        )

    def zero_loss(self, batch: Any) -> float:
        """The loss of a network that knows nothing: with parameters that are nearly zero.

        At zero itself, normalized weights and outputs are not defined; and a zero output is no
        answer of a model that ends in a softmax, a sigmoid or a variance.
        """
        found = math.nan
        for factor in NEARLY_ZERO:
            self.place(self.unit_scales, {n: factor * t for n, t in self.start.items()})
            with self.session(), torch.no_grad():
                found = float(self.loss(batch))
            if math.isfinite(found):
                break
        return found

    def output(self, inputs: Any) -> Any:
        """What the model makes of inputs, at the start."""
        self.place(self.unit_scales)
        with self.session(), torch.no_grad():
            return self._forward(self.prepare((inputs, None)), self.seed)[0]

    def run(self, batch: Any) -> None:
        """A forward pass for its own sake; without a loss a batch may be inputs alone."""
        if self.has_loss:
            self._evaluate(batch, self.seed)
        elif isinstance(batch, Tensor):
            self._forward((batch, None), self.seed)
        elif isinstance(batch, (tuple, list)) and len(batch) in (1, 2):
            self._forward((batch[0], None), self.seed)
        else:
            raise TypeError(
                f"A batch of type `{type(batch).__name__}` is neither inputs nor `(inputs, "
                "targets)`. Say how the model is called, for example "
                "`compute_loss=lambda model, batch: model(**batch).loss`."
            )

    def _evaluate(self, batch: Any, seed: int) -> Tensor:
        if self.compute_loss is None:
            output, target = self._forward(batch, seed)
            return self._loss_fn(output, target)
        batch = self._fresh(batch, seed)
        with ReplacedLayers(self._context), self._autocast():
            return self.compute_loss(self.model, batch)

    def _forward(self, batch: Any, seed: int) -> tuple[Any, Any]:
        inputs, target = self._fresh(batch, seed)
        with ReplacedLayers(self._context), self._autocast():
            output = self.model(inputs)
        return (map_tensors(widen, output) if self.autocast else output), target

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, self.autocast, cache_enabled=False)

    def _fresh(self, batch: Any, seed: int) -> Any:
        """The same samples, buffers and random numbers for every evaluation, on every engine."""
        seed_all(seed)
        for module, key, buffer in self._buffers:
            module._buffers[key] = buffer.clone()
        return map_tensors(torch.clone, batch)

    def prepare(self, batch: Any) -> Any:
        """The batch on the model's device, widened where the model is of half precision."""
        if self.has_loss and self.compute_loss is None:
            check_pair(batch)
        batch_size(batch)
        half = any(p.dtype in HALF for p in self.parameters.values())
        moved = map_tensors(lambda t: t.to(self.device, non_blocking=True), batch)
        return map_tensors(widen, moved) if half else moved

    @property
    def batch_norms(self) -> list[str]:
        """Names of the modules that normalize over the batch."""
        return [n for n, m in self.model.named_modules() if isinstance(m, _BatchNorm)]

    @contextmanager
    def session(self, second_order: bool = False, marked: bool = False) -> Iterator[None]:
        """Borrow the model: scaled parameters, training mode, dropout off; then give it back.

        Args:
            second_order: Use kernels that can be differentiated twice.
            marked: Differentiate by ``marks`` where a weight is used in a product; see
                ``kernels/products.py``. Only for one first-order pass with its graph and a
                second backward by all of ``theta`` and ``marks``.
        """
        outer = self._buffers, self.marks, self._context  # of a session around this one
        with borrowed(self.model, second_order) as found:
            self._buffers = outer[0] or found  # what forward passes start from
            if "_original_forward" in vars(self.model):  # Accelerate's wrapper turns autocast on
                self.model.forward = self.model._original_forward  # type: ignore[assignment]
            for module, key, name in self._places:
                module._parameters[key] = self._theta[name]  # type: ignore[assignment]
            try:
                self._mark(marked)
                yield
            finally:
                self._buffers, self.marks, self._context = outer

    def _mark(self, marked: bool) -> None:
        """A factor of one for every weight that is scaled, to be differentiated by.

        A weight whose scale is zero has none, and its derivative is taken by the weight itself.
        """
        names = [n for n in self.scaled if self.factors.get(n, 1.0) != 0] if marked else []
        self.marks = {
            n: torch.ones((), dtype=wide(self.start[n]), device=self.device, requires_grad=True)
            for n in names
        }
        self._context = KernelContext({id(self._theta[n]): mark for n, mark in self.marks.items()})

    @contextmanager
    def by_piece(self, rows: PieceParameters) -> Iterator[None]:
        """Passes inside keep the pieces of a batch apart, see :mod:`neuroinit.gradients.pieces`."""
        outer, self._context.pieces = self._context.pieces, rows
        try:
            yield
        finally:
            self._context.pieces = outer

    def rows(self, pieces: Sequence[Interval], names: Sequence[str]) -> PieceParameters:
        """Leaves whose gradients are those of pieces, which follow one another.

        A scaled weight without a mark has none: its derivative is taken by itself.
        """
        first = pieces[0][0]
        unmarked = {n for n in self.scaled if n not in self.marks} if self.marks else set()
        leaves = {
            id(t): t.detach().expand(len(pieces), *t.shape).requires_grad_()
            for n, t in zip(names, self.theta(names), strict=True)
            if t.dim() < 2 or n not in unmarked
        }
        return PieceParameters(
            tuple((start - first, stop - first) for start, stop in pieces), leaves
        )

    def gradient(
        self, loss: Tensor, names: Sequence[str], create_graph: bool, retain_graph: bool
    ) -> tuple[Tensor | None, ...]:
        """The gradient of a loss by the scaled parameters of these names."""
        return self.gradient_by(loss, self.theta(names), create_graph, retain_graph)

    def gradient_by(
        self, loss: Tensor, leaves: list[Tensor], create_graph: bool, retain_graph: bool = False
    ) -> tuple[Tensor | None, ...]:
        """The gradient of a loss by tensors of one's own."""
        return differentiate([loss], leaves, None, create_graph, retain_graph, self._context)

    def second_backward(
        self, outputs: Sequence[Tensor], vectors: Sequence[Tensor], retain_graph: bool
    ) -> dict[str, Tensor]:
        """``<W_k, gradient by theta_k of sum <outputs, vectors>>`` of every scale that is felt."""
        inputs = [*self.theta(self.scaled), *self.marks.values()]
        self._context.second_backward = True
        try:
            found = differentiate(outputs, inputs, vectors, False, retain_graph, self._context)
        finally:
            self._context.second_backward = False
        total = {
            n: narrow(dot(self.start[n], g))
            for n, g in zip(self.scaled, found, strict=False)
            if g is not None
        }
        for n, g in zip(self.marks, found[len(self.scaled) :], strict=True):
            if g is not None:
                total[n] = total.get(n, 0.0) + narrow(g) / self.factors[n]
        return total

    # -- gradients as flat vectors, of which a sharded model's ranks have a part each --------------

    def norm(self, gradient: Tensor) -> Tensor:
        """The norm of a gradient."""
        norm: Tensor = torch.linalg.vector_norm(gradient, dtype=wide(gradient))
        return norm

    def gram(self, gradients: Sequence[Tensor]) -> Tensor:
        """The Gram matrix of gradients."""
        return gram_matrix(gradients)

    def over_shards(self, values: Tensor, names: Sequence[str]) -> Tensor:
        """Values found of every name's shards, summed; there is one shard."""
        return values

    def by_scales(self, gradient: Tensor) -> Tensor:
        """Contract a gradient with ``W``: ``<W_k, gradient_k>`` for every scale."""
        names = self.differentiated
        parts = dict(zip(names, unflatten(gradient, self.theta(names)), strict=True))
        zero = torch.zeros((), dtype=torch.float64, device="cpu")
        return torch.stack(
            [narrow(dot(self.start[n], parts[n])) if n in parts else zero for n in self.scaled]
        )
