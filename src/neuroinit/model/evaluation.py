"""Losses of a model that holds the values of a point."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Data, Interval, map_tensors
from neuroinit.common.process.signals import Where, allowed
from neuroinit.common.tensors import at_least_float32
from neuroinit.kernels.context import KernelContext, NotSeparableError
from neuroinit.kernels.function_mode import ReplacedLayers
from neuroinit.kernels.losses import losses_of_pieces, separated_losses
from neuroinit.model.arguments.validation import mean_loss
from neuroinit.model.point import Point

LOSS_SEED = 2**30  # added to the seed of a pass for random numbers in `loss_fn`


class Evaluation:
    """Losses of a model at a point; the base of :class:`~neuroinit.model.session.Session`.

    Every evaluation starts from the same buffers and the same random seed, in every engine.

    Args:
        point: The values that the model holds.
        scale_variables: Parameter name -> scalar one by which the kernels multiply the weight; its
            gradient is the derivative by the scale.
        autocast: Dtype of the forward passes; ``None`` for the dtype of the model.
    """

    def __init__(
        self, point: Point, scale_variables: dict[str, Tensor], autocast: torch.dtype | None
    ) -> None:
        self.point, self.problem = point, point.problem
        self.scale_variables, self.autocast = scale_variables, autocast
        weights = {id(point.values[n]): scale for n, scale in scale_variables.items()}
        self._context = KernelContext(weights)
        self._keeps_layers = False
        self._repeatable = self.problem.traits.repeatable

    @contextmanager
    def keeping_layers(self) -> Iterator[None]:
        """A context in which torch computes all layers, for first-order passes.

        There are neither scales nor pieces. A pass that draws random numbers is repeated with
        replaced layers, whose dropout is off.
        """
        own, self._context = self._context, KernelContext()
        self._keeps_layers = True
        try:
            yield
        finally:
            self._context, self._keeps_layers = own, False

    def loss(self, batch: Batch, seed: int | None = None, size: int | None = None) -> Tensor:
        """The mean loss of a batch.

        Args:
            batch: A prepared batch.
            seed: Random seed of the forward pass; ``problem.seed`` by default.
            size: The number of samples, if it is known.
        """
        losses = self._losses(batch, self.problem.seed if seed is None else seed)
        return mean_loss(losses, self.problem.layout.size(batch) if size is None else size)

    def loss_value(self, batch: Batch) -> float:
        """The mean loss of a batch as a number; no graph is kept."""
        try:
            with torch.no_grad():
                return float(self.loss(batch))
        except RuntimeError:  # the loss calls autograd; any other error is raised again here
            return float(self.loss(batch).detach())

    def losses(
        self, batch: Batch, pieces: Sequence[Interval], one_forward: bool
    ) -> Iterator[Tensor]:
        """The mean loss of each piece of a batch, one graph at a time.

        Args:
            batch: A prepared batch.
            pieces: The samples of every piece, ``(start, stop)``.
            one_forward: Pieces are slices of one forward pass of the whole batch.
        """
        problem = self.problem
        if not one_forward:
            for start, stop in pieces:
                part = problem.layout.cut(batch, start, stop)
                yield self.loss(part, problem.seed + start, stop - start)
        elif problem.compute_loss is None:
            yield from self._losses_of(*self._forward(batch, problem.seed), pieces)
        else:
            values, size = self._losses(batch, problem.seed), problem.layout.size(batch)
            if values.shape != (size,):
                raise ValueError(
                    "Statistics of the whole batch need a `compute_loss` that returns one loss per "
                    f"sample. Found a loss of shape {tuple(values.shape)} for {size} samples. "
                    "Return unreduced losses, or use `batch_stats='sub-batch'`."
                )
            for start, stop in pieces:
                yield values[start:stop].mean()

    def losses_in_one_pass(
        self, batch: Batch, pieces: Sequence[Interval], samples: list[int] | None
    ) -> Iterator[Tensor]:
        """The mean loss of each piece, inside :meth:`separating`.

        Args:
            batch: A prepared batch.
            pieces: Consecutive pieces of the selected samples.
            samples: Indices of the samples whose loss is computed; ``None`` for all.

        Raises:
            NotSeparableError: If the losses cannot be kept apart.
        """
        problem = self.problem
        if problem.compute_loss is None:
            output, target = self._forward(batch, problem.seed)
            yield from self._losses_of(
                _selected(output, samples), _selected(target, samples), pieces
            )
            return
        values = self._losses(batch, problem.seed)
        total = mean_loss(values, problem.layout.size(batch))
        if values.dim():
            values = _selected(values, samples)
            yield from (values[start:stop].mean() for start, stop in pieces)
        elif samples is None and self._context.pieces is not None:
            yield from separated_losses(total, self._context.pieces.losses or [])
        else:
            raise NotSeparableError

    def output(self, inputs: Data) -> Data:
        """The model's output for a batch of inputs."""
        return self._forward(self.problem.prepare((inputs, None)), self.problem.seed)[0]

    def run(self, batch: Batch) -> None:
        """A forward pass whose output is not used. Without a loss, a batch may be inputs alone."""
        self.problem.traits.seed_passes()  # never repeat the pass: its hooks change weights
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
        """The value of the user's loss: a scalar, or one loss per sample."""
        compute_loss = self.problem.compute_loss
        if compute_loss is None:
            return self._loss_of_pair(batch, seed)

        def run() -> Tensor:
            own = self._reset(batch)
            with self._layers(), self._autocast(), self._interruptible():
                return compute_loss(self.problem.model, own)

        (loss,) = self._repeatable((run, seed))
        return loss

    def _loss_of_pair(self, batch: Batch, seed: int) -> Tensor:
        """The value of ``loss_fn``; model and loss are run again together if one of them draws."""
        outputs, losses = list[tuple[Data, Data]](), list[Tensor]()

        def forward() -> None:
            outputs[:] = [self._output(batch)]

        def loss() -> None:
            losses[:] = [self.problem.loss_fn(*outputs[0])]

        self._repeatable((forward, seed), (loss, seed + LOSS_SEED))
        return losses[0]

    def _losses_of(
        self, output: Data, target: Data, pieces: Sequence[Interval]
    ) -> Iterator[Tensor]:
        """Yield the mean loss of each piece, from the output for all samples."""
        independent = self.problem.traits.independent
        together = self.problem.losses_of_pieces(output, target, pieces)
        if together is None:
            loss_fn = self.problem.loss_fn
            together = losses_of_pieces(loss_fn, output, target, pieces, independent)
        if together is not None:
            yield from together.unbind()
            return
        cut, seed, loss_fn = self.problem.layout.cut, self.problem.seed, self.problem.loss_fn
        parts = [[cut(x, start, stop) for x in (output, target)] for start, stop in pieces]
        runs = [
            (functools.partial(loss_fn, *part), seed + start + LOSS_SEED)
            for part, (start, _) in zip(parts, pieces, strict=True)
        ]
        for loss, (start, stop) in zip(self._repeatable(*runs), pieces, strict=True):
            yield mean_loss(loss, stop - start)

    def _forward(self, batch: Batch, seed: int) -> tuple[Data, Data]:
        (found,) = self._repeatable((functools.partial(self._output, batch), seed))
        return found

    def _output(self, batch: Batch) -> tuple[Data, Data]:
        """The model's output for a batch, and the targets."""
        inputs, target = self._reset(batch)
        with self._layers(), self._autocast(), self._interruptible():
            output = self.problem.model(inputs)
        return (map_tensors(at_least_float32, output) if self.autocast else output), target

    def _layers(self) -> AbstractContextManager[object]:
        return nullcontext() if self._plain else ReplacedLayers(self._context)

    @property
    def _plain(self) -> bool:
        """Whether passes use the layers of torch."""
        return self._keeps_layers and not self.problem.traits.draws

    def _interruptible(self) -> AbstractContextManager[object]:
        """A context in which Ctrl-C is not delayed, for the user's code."""
        return allowed(Where.USER_CODE)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.problem.device.type, self.autocast, cache_enabled=False)

    def _reset(self, batch: Batch) -> Batch:
        """Reset the buffers of the model to copies of their values; return a copy of the batch."""
        pieces = self._context.pieces
        if pieces is not None:  # what was noted is from a pass that is repeated now
            pieces.clear()
        for module, key, buffer in self.problem.buffers:
            module._buffers[key] = buffer.clone()
        return map_tensors(torch.clone, batch)


def _selected(values: Data, samples: list[int] | None) -> Data:
    """Select samples of a tensor along its first dimension; ``None`` selects all."""
    if samples is None:
        return values
    if not isinstance(values, Tensor):
        raise NotSeparableError
    return values.index_select(0, torch.tensor(samples, device="cpu").to(values.device))
