"""The loss of every piece from loss functions in the user's code, in a pass over several pieces.

``compute_loss(model, batch)`` returns one number for the whole batch. In a pass over several pieces
we replace the loss functions of torch that it calls: ``F.cross_entropy(..., reduction="mean")``
becomes the mean over pieces of the losses of the pieces, each a mean over the samples or tokens of
the piece that are not masked. With ``m_c`` the value of call ``c`` and ``l_cs`` the loss of piece
``s`` there, a result that is a weighted sum of the calls,

    R = sum_c a_c m_c,    has the losses    L_s = sum_c a_c l_cs    of the pieces.

``a_c`` is the derivative of ``R`` by ``m_c``. In every pass we check that ``R`` depends on the
parameters through the calls only, and that it is ``sum_c a_c m_c``. Other losses are computed piece
by piece.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from neuroinit.common.batches import Data
from neuroinit.common.graphs import graph_nodes
from neuroinit.kernels.context import KernelContext, NotSeparableError

OF_CLASSES: tuple[Callable[..., Tensor], ...] = (F.cross_entropy, F.nll_loss)
OF_ENTRIES: tuple[Callable[..., Tensor], ...] = (
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.soft_margin_loss,
)
LOSSES = {*OF_CLASSES, *OF_ENTRIES}
ROUNDING = 1e-4  # relative rounding error of a loss in float32 or less


def loss_of_pieces(
    func: Callable[..., Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context: KernelContext,
) -> Tensor | None:
    """The mean of the losses of the pieces; both are recorded in ``context.pieces.losses``.

    ``None`` leaves the call to torch: losses are not recorded, the reduction is not a mean, entries
    have weights, or the first dimension of the inputs is not that of the samples.

    Args:
        func: A function in ``LOSSES``.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        context: The pieces.
    """
    pieces = context.pieces
    if pieces is None or pieces.losses is None:
        return None
    arguments = inspect.signature(func).bind(*args, **kwargs).arguments
    x, target = arguments.pop("input"), arguments.pop("target")
    if not _is_mean(arguments) or not _fit(x, target, func in OF_CLASSES, arguments):
        return None
    rows, rest = divmod(len(x), pieces.intervals[-1][1])
    if rest or not torch.is_grad_enabled():
        return None
    intervals = [(start * rows, stop * rows) for start, stop in pieces.intervals]
    own = functools.partial(func, **arguments)
    losses = losses_of_pieces(own, x, target, intervals)
    if losses is None:
        losses = torch.stack([own(x[a:b], target[a:b]) for a, b in intervals])
    mean = losses.mean()
    pieces.losses.append((mean, losses))
    return mean


def losses_of_pieces(
    loss_fn: Callable[[Data, Data], Tensor],
    output: Data,
    target: Data,
    pieces: Sequence[tuple[int, int]],
    independent: bool = False,
) -> Tensor | None:
    """The mean losses of pieces by ``torch.vmap``, with as many operators as for one piece.

    There is one call for every size of pieces; it launches about as many operators as two calls in
    a loop. Pieces of different sizes take one call for all samples if these are independent.
    Returns ``None`` if the caller should loop over the pieces: on a CPU, where operators cost
    little and ``vmap`` does not; for many different sizes; and for losses that cannot be
    vectorized.

    Args:
        loss_fn: A scalar mean, or one loss per sample.
        output: The model's output for all samples, a tensor ``(samples, ...)``.
        target: The targets, a tensor ``(samples, ...)``.
        pieces: Consecutive pieces from 0 to the number of samples.
        independent: Whether the loss of a piece is known to be the mean of its samples' losses.
    """
    plain = isinstance(output, Tensor) and isinstance(target, Tensor)
    edges = [0, *(stop for _, stop in pieces)]
    regular = list(itertools.pairwise(edges)) == [tuple(p) for p in pieces]
    if not plain or not regular or len(pieces) == 1 or output.device.type == "cpu":
        return None
    if len(output) != edges[-1] or target.dim() == 0 or len(target) != edges[-1]:
        return None
    sizes = [stop - start for start, stop in pieces]
    if independent and len(set(sizes)) > 1:
        return means_of_pieces(_losses_of_equal_pieces(loss_fn, output, target, len(output)), sizes)
    if 2 * len(set(sizes)) > len(sizes):
        return None
    found: dict[int, Tensor] = {}
    for size in set(sizes):
        alike = [k for k, own in enumerate(sizes) if own == size]
        rows = [i for k in alike for i in range(*pieces[k])]
        losses = _losses_of_equal_pieces(
            loss_fn, _rows(output, rows), _rows(target, rows), len(alike)
        )
        if losses is None or len(alike) == len(pieces):
            return losses
        found |= zip(alike, losses.unbind(), strict=True)
    return torch.stack([found[k] for k in range(len(pieces))])


def means_of_pieces(losses: Tensor | None, sizes: Sequence[int]) -> Tensor | None:
    """The mean loss of every piece, from the losses of samples; ``None`` if there are none."""
    return None if losses is None else means_of_slices(losses, _slices(sizes))


def means_of_slices(losses: Tensor, slices: Sequence[slice]) -> Tensor:
    """The mean of every slice of the losses of samples, as one matrix product."""
    weights = torch.zeros(len(slices), len(losses), dtype=losses.dtype, device="cpu")
    for own, part in zip(weights, slices, strict=True):
        own[part] = 1 / (part.stop - part.start)
    return weights.to(losses.device, non_blocking=True) @ losses


def _slices(sizes: Sequence[int]) -> list[slice]:
    edges = itertools.accumulate(sizes, initial=0)
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _rows(x: Tensor, rows: list[int]) -> Tensor:
    """Some rows of a tensor, or all of them."""
    if len(rows) == len(x):
        return x
    return x.index_select(0, torch.tensor(rows, device="cpu").to(x.device, non_blocking=True))


def _losses_of_equal_pieces(
    loss_fn: Callable[[Data, Data], Tensor], output: Tensor, target: Tensor, count: int
) -> Tensor | None:
    """The mean loss of each of ``count`` pieces of equal size."""
    size = len(output) // count
    apart = [x.reshape(count, size, *x.shape[1:]) for x in (output, target)]
    try:
        found = torch.vmap(loss_fn)(*apart)
    except RuntimeError:
        return None
    if found.shape == (count, size):
        return found.mean(1)
    return found if found.shape == (count,) else None


class OtherTargets(TorchFunctionMode):
    """Loss functions of torch return ``L(x, y) - mean_s L(x, y_s)`` in place of ``L(x, y)``.

    ``y_s`` are the targets shifted by ``s`` samples. One forward pass is enough for all of them.

    Args:
        size: Number of samples; a loss has the targets of all of them.
        shifts: By how many samples ``s`` the targets are shifted, cyclically.
    """

    def __init__(self, size: int, shifts: Sequence[int]) -> None:
        super().__init__()
        self.size, self.shifts = size, shifts

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in LOSSES:
            return func(*args, **kwargs)
        bound = inspect.signature(func).bind(*args, **kwargs)
        target = bound.arguments["target"]
        rows, rest = divmod(len(target), self.size)
        if rest or not rows:
            return func(*args, **kwargs)
        losses = []
        for shift in (0, *self.shifts):
            bound.arguments["target"] = target.roll(-shift * rows, 0) if shift else target
            losses.append(func(*bound.args, **bound.kwargs))
        return losses[0] - torch.stack(losses[1:]).mean(0)


def _is_mean(arguments: Mapping[str, object]) -> bool:
    legacy = [arguments.get(name) for name in ("size_average", "reduce")]
    return arguments.get("reduction", "mean") == "mean" and legacy == [None, None]


def _fit(x: object, target: object, of_classes: bool, arguments: Mapping[str, object]) -> bool:
    """Whether input and target have matching first dimensions, and no weights for entries."""
    if not isinstance(x, Tensor) or not isinstance(target, Tensor) or not target.dim():
        return False
    if of_classes:
        return x.dim() > 1 and len(x) == len(target)
    return x.shape == target.shape and arguments.get("weight") is None


def separated_losses(total: Tensor, calls: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The losses of the pieces, shape ``(pieces,)``, from the user's loss and the recorded calls.

    Args:
        total: The user's loss, a scalar.
        calls: For every call of a loss function, its result and the losses of the pieces.

    Raises:
        NotSeparableError: If the user's loss is not a weighted sum of the calls.
    """
    calls = [call for call in calls if call[0].requires_grad]
    means = [mean for mean, _ in calls]
    if not calls or not _depends_only_on(total, means):
        raise NotSeparableError
    weights = torch.autograd.grad(total, means, retain_graph=True, allow_unused=True)
    if any(w is None for w in weights):
        raise NotSeparableError
    used = torch.stack([w for w in weights if w is not None])
    summed = (used * torch.stack(means).detach()).sum().to(total)
    rounding = 1e-10 if total.dtype == torch.float64 else ROUNDING
    equal = torch.isclose(summed, total.detach(), rtol=rounding, atol=0, equal_nan=True)
    if not equal & (used != 0).all():  # a weight is zero for the larger one of two losses
        raise NotSeparableError
    return torch.stack([w * losses for w, (_, losses) in zip(used, calls, strict=True)]).sum(0)


def _depends_only_on(total: Tensor, means: list[Tensor]) -> bool:
    """Whether every path from a loss to a leaf of the graph leads through one of the means."""
    ends = {mean.grad_fn for mean in means}
    leaves = (node for node in graph_nodes([total], ends) if hasattr(node, "variable"))
    return total.grad_fn is not None and next(leaves, None) is None
