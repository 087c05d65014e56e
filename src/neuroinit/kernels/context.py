"""The context that tells the replaced layers which pass they are part of.

A derivative by the scales takes three passes over a model:

1. The forward pass, in which :class:`~neuroinit.kernels.function_mode.ReplacedLayers` is active.
2. The first backward: ``differentiate(..., context=context)``. It gives the gradient by the
   parameters, or the gradients of several pieces of the batch.
3. The second backward: the same call while ``context.second_backward`` is set. It gives the
   derivative of ``sum <gradient, direction>`` by the scales.

A backward pass that the user's code starts, for example for a gradient penalty in the forward pass,
is neither of the two. The replaced layers then compute their gradient from operators of torch that
can be differentiated any number of times, so that the passes above are exact for such losses, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from neuroinit.kernels.sample_order import SampleOrder

Saved = tuple[Tensor, ...]


class RowSlices(list[slice]):
    """The rows of every piece.

    Attributes:
        sizes: The number of rows of every piece.
        most: The largest of them.
        equal: Whether all are the same.
        known: The conversion of ``batched.py``, once it was needed.
    """

    def __init__(self, slices: Iterable[slice]) -> None:
        super().__init__(slices)
        self.sizes = [s.stop - s.start for s in self]
        self.most = max(self.sizes)
        self.equal = min(self.sizes) == self.most
        self.known: object = None


Slices = RowSlices | None


class NotSeparableError(Exception):
    """One pass over several pieces of a batch cannot keep the gradients of the pieces apart."""


@dataclass
class Recorded:
    """What a first-order pass leaves to torch, without the parameters in the graph.

    Args:
        layers: Small linear layers, see ``products/recorded.py``.
        used: Whether there is any such layer, or a recurrent one that has used its leaves.
    """

    layers: list[Any] = field(default_factory=list)
    used: bool = False

    def clear(self) -> None:
        """Forget everything."""
        self.layers.clear()
        self.used = False


@dataclass(frozen=True)
class PieceParameters:
    """For one pass over several pieces of a batch: leaves whose gradients are those of the pieces.

    Args:
        intervals: The pieces as ``(start, stop)``, consecutive, from 0 to the size of the batch.
        leaves: Parameter id -> leaf of shape ``(pieces, *parameter.shape)``. Entry ``s`` of its
            gradient is the gradient of piece ``s``.
        derived: Tensor id -> ``(tensor, leaf)`` for tensors computed from one parameter, such as
            views. The tensor is kept so that no other tensor gets its id.
        losses: ``(mean, losses of the pieces)`` of every loss function that the user's code calls,
            see ``losses.py``; ``None`` if they are not recorded.
        recorded: The layers of a first-order pass that are left to torch; ``None`` for none.
        order: In which order samples are packed.
    """

    intervals: tuple[tuple[int, int], ...]
    leaves: dict[int, Tensor]
    derived: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    losses: list[tuple[Tensor, Tensor]] | None = None
    recorded: Recorded | None = None
    order: SampleOrder = field(default_factory=SampleOrder)
    _slices: dict[int, RowSlices] = field(default_factory=dict)

    def slices(self, x: Tensor) -> RowSlices:
        """The rows of every piece in an activation of shape ``(samples * n, ...)``, for any n.

        Raises:
            NotSeparableError: The first dimension is not a multiple of the number of samples.
        """
        rows, rest = divmod(len(x), self.intervals[-1][1]) if x.dim() > 1 else (0, 1)
        if rest or not rows:
            raise NotSeparableError
        if rows not in self._slices:
            found = [slice(start * rows, stop * rows) for start, stop in self.intervals]
            self._slices[rows] = RowSlices(found)
        return self._slices[rows]

    def leaf(self, parameter: Tensor | None) -> Tensor | None:
        """The leaf of a parameter, ``None`` if it needs no gradient.

        Raises:
            NotSeparableError: The tensor is not a parameter but computed from parameters.
        """
        if parameter is None or not parameter.requires_grad:
            return None
        if not parameter.is_leaf:
            raise NotSeparableError
        return self.leaves.get(id(parameter))

    def clear(self) -> None:
        """Forget what a pass has noted that is repeated now."""
        self.order.clear()
        for noted in (self.losses, self.recorded):
            if noted is not None:
                noted.clear()

    def known_leaf(self, tensor: object) -> Tensor | None:
        """The leaf of a parameter or of a tensor in ``derived``, ``None`` for all others."""
        if id(tensor) in self.leaves:
            return self.leaves[id(tensor)]
        return self.derived[id(tensor)][1] if id(tensor) in self.derived else None


@dataclass
class KernelContext:
    """State shared by the replaced layers of one session.

    Args:
        scales: Weight id -> scalar tensor, equal to one, that multiplies the weight. Its gradient
            is the derivative by the scale, see ``linear_and_convolution.py``.
        second_backward: Whether the next call of ``differentiate`` is the second backward. The
            caller sets and resets it.
        pieces: Set for one pass over several pieces of a batch.
    """

    scales: dict[int, Tensor] = field(default_factory=dict)
    second_backward: bool = False
    pieces: PieceParameters | None = None
    _differentiating: bool = False

    def __bool__(self) -> bool:
        return bool(self.scales) or self.pieces is not None

    def knows(self, weight: object) -> bool:
        """Whether the derivative by a weight is taken by its scale or its leaf."""
        in_pieces = self.pieces is not None and id(weight) in self.pieces.leaves
        return in_pieces or id(weight) in self.scales

    def check_inner_backward(self) -> None:
        """Raise if the user's code starts a backward pass and the parameters are not in its graph.

        Raises:
            NotSeparableError: Layers were left to torch.
        """
        recorded = None if self.pieces is None else self.pieces.recorded
        if recorded is not None and recorded.used:
            raise NotSeparableError

    @property
    def differentiating_now(self) -> bool:
        """Whether a backward pass runs that the user's code has not started."""
        return self._differentiating

    @property
    def first_backward(self) -> bool:
        """Whether the first backward runs, and the context has scales or pieces.

        False in a backward pass that the user's code has started.
        """
        return self._differentiating and not self.second_backward and bool(self)

    @contextmanager
    def differentiating(self) -> Iterator[None]:
        """A context for backward passes that ``differentiate`` starts, not the user's code."""
        outer, self._differentiating = self._differentiating, True
        try:
            yield
        finally:
            self._differentiating = outer


def transforms_active() -> bool:
    """Whether a ``torch.func`` transform or forward-mode differentiation is active.

    Our autograd functions support neither, so layers are then computed by operators of torch.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def per_slice(function: Callable[..., Tensor], slices: Slices, *args: Tensor) -> Tensor:
    """``function(*args)``; with slices, its results for ``a[s]`` of all arguments, stacked."""
    if slices is None:
        return function(*args)
    return torch.stack([function(*(a[s] for a in args)) for s in slices])


def slice_directions(slices: Slices, direction: Tensor) -> list[tuple[slice, Tensor]]:
    """Pairs of a slice and its entry of ``direction``, which has shape ``(slices, ...)``.

    Without slices: one pair, of all rows and the whole direction.
    """
    if slices is None:
        return [(slice(None), direction)]
    return list(zip(slices, direction, strict=True))


def leaf_gradients(
    separate: bool, gw: Tensor | None, gb: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The gradients by weight, bias, leaf of the weight and leaf of the bias, in this order.

    Args:
        separate: Return ``gw`` and ``gb`` as gradients by the leaves, not by the parameters.
        gw: The gradient by the weight, or one for every piece.
        gb: The gradient by the bias, or one for every piece.
    """
    return (None, None, gw, gb) if separate else (gw, gb, None, None)


def without_function_mode(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward so that ``ReplacedLayers`` does not replace operators inside it.

    Saved tensors are read before, because reading them may run a checkpointed part of the model
    again, in which layers have to be replaced.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *gradients: Any) -> Any:
        saved = ctx.saved_tensors
        with torch._C.DisableTorchFunction():
            return backward(ctx, saved, *gradients)

    return wrapped
