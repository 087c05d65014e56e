"""``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` from linear layers and ``recurrence.py``.

torch's double backward of a recurrent layer is slow, and gives no gradient for each piece.
A step of NIO in training steps (32 samples, 32 time steps, D=8; one thread, torch 2.13): two layers
of LSTM with 64 features 52 by torch's operators and 9.8 by these, with 128 features 8.0; GRU 4.8,
RNN 5.6; one bidirectional layer of LSTM 8.8. Packed sequences of 8 to 32 steps: two layers of LSTM
16 by torch's operators and 3.9 by these, GRU 22 and 3.8, RNN 19 and 4.8; one bidirectional layer of
LSTM 19 and 2.8 (torch's training step of packed sequences is slow).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.kernels.context import KernelContext, NotSeparableError, transforms_active
from neuroinit.kernels.recurrent.cells import GRU, LSTM, RNN, Cell
from neuroinit.kernels.recurrent.packing import Packing, packing_of, select
from neuroinit.kernels.recurrent.recurrence import recurrence

FEW = 8  # least samples in a piece that torch computes alone in a first-order pass

CELLS: dict[str, Callable[[], Cell]] = {
    "lstm": LSTM,
    "gru": GRU,
    "rnn_tanh": RNN,
    "rnn_relu": lambda: RNN(relu=True),
}


def recurrent(
    name: str, args: tuple[Any, ...], context: KernelContext
) -> tuple[Tensor, ...] | None:
    """The result of torch's ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``; or ``None``.

    ``None`` leaves the call to torch: there are neither scales nor pieces, an LSTM has projections,
    or dtypes differ.

    Args:
        name: The name of torch's function.
        args: Its arguments: input, states, weights, whether there are biases, layers, dropout,
            training, whether it is bidirectional, whether samples come first. For packed sequences
            the batch sizes follow the input, and the last one is missing.
        context: Scales and pieces.

    Raises:
        NotSeparableError: If it is not known which sample a packed sequence belongs to.
    """
    if not context or len(args) != 9 or transforms_active():
        return None
    packed = isinstance(args[3], (tuple, list))
    if packed:
        x, batch_sizes, state, weights, biased, layers, _, _, both = args
    else:
        x, state, weights, biased, layers, _, _, both, samples_first = args
    states = state if isinstance(state, (tuple, list)) else (state,)
    per_layer = 4 if biased else 2
    groups = [weights[i : i + per_layer] for i in range(0, len(weights), per_layer)]
    alike = all(t.dtype == x.dtype for t in (*weights, *states))
    known = all(context.knows(w) for group in groups for w in group[:2])
    if not alike or not known or len(groups) != layers * (1 + both) or x.dim() != 3 - packed:
        return None
    if name == "lstm" and not packed and (found := _by_torch(args, context)) is not None:
        return found
    cell = CELLS[name]()
    if packed:
        return _packed(cell, x, batch_sizes, states, groups, both, context)
    x = x if samples_first else x.transpose(0, 1)
    y, ends = _layers(cell, x, states, groups, both, context)
    return (y if samples_first else y.transpose(0, 1)), *ends


def _by_torch(args: tuple[Any, ...], context: KernelContext) -> tuple[Tensor, ...] | None:
    """All layers of an LSTM in a first-order pass by torch's fused kernel, piece by piece.

    The weights are the leaves of the pieces. ``None`` if that is slower. Statistics of two layers
    with 64 features take 2.9 training steps in place of 4.6 for pieces of 16 samples, 4.1 in place
    of 5.1 for 8, and 6.3 in place of 6.0 for 4. torch has no such kernel for GRU and RNN.
    """
    x, states, weights, *options = args
    pieces, dim = context.pieces, 0 if options[-1] else 1
    if pieces is None or pieces.recorded is None or not _fused():
        return None
    sizes = [stop - start for start, stop in pieces.intervals]
    fits = sum(sizes) == x.shape[dim] and min(sizes) >= FEW
    if not fits or x.device.type != "cpu" or x.dtype != torch.float32:
        return None
    pieces.recorded.used = True
    leaves = [(w, pieces.leaf(w)) for w in weights]
    own = [w.expand(len(sizes), *w.shape) if leaf is None else leaf for w, leaf in leaves]
    parts = zip(
        torch.split(x, sizes, dim),
        zip(*(torch.split(s, sizes, 1) for s in states), strict=True),
        zip(*(w.unbind() for w in own), strict=True),
        strict=True,
    )
    y, *ends = zip(*(torch.lstm(part, h, w, *options) for part, h, w in parts), strict=True)
    return torch.cat(y, dim), *(torch.cat(end, 1) for end in ends)


def _fused() -> bool:
    """Whether torch has its fused kernel for an LSTM on a CPU."""
    found: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return found


def _packed(
    cell: Cell,
    data: Tensor,
    batch_sizes: Tensor,
    states: Sequence[Tensor],
    groups: list[list[Tensor]],
    both: bool,
    context: KernelContext,
) -> tuple[Tensor, ...]:
    """All layers for packed sequences, as a padded batch in the order of the samples.

    Raises:
        NotSeparableError: If it is not known which sample a sequence belongs to.
    """
    order = None
    if context.pieces is not None:
        known, order = context.pieces.order.of_packed(batch_sizes)
        if not known:
            raise NotSeparableError
    with torch._C.DisableTorchFunction():
        packing = packing_of(batch_sizes, order, data)
    own = [select(s, 1, packing.places) for s in states]
    y, ends = _layers(cell, packing.padded(data), own, groups, both, context, packing)
    return packing.packed(y), *(select(e, 1, packing.order) for e in ends)


def _layers(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    groups: list[list[Tensor]],
    both: bool,
    context: KernelContext,
    packing: Packing | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """All layers: the outputs of the last one, and the last states of all.

    Args:
        cell: The cell.
        x: Of shape ``(samples, steps, features)``.
        states: The first states, of shape ``(layers and directions, samples, features)``.
        groups: The weights of every layer and direction.
        both: Whether there are two directions.
        context: Scales and pieces.
        packing: The lengths of the sequences; ``None`` if all have the same.
    """

    def flipped(x: Tensor) -> Tensor:
        return x.flip(1) if packing is None else packing.reversed(x)

    last: list[list[Tensor]] = []
    for layer in range(len(groups) // (1 + both)):
        outputs = []
        for k in range(1 + both):
            place = layer * (1 + both) + k
            own = [s[place] for s in states]
            y, ends = _direction(cell, flipped(x) if k else x, own, groups[place], context, packing)
            outputs.append(flipped(y) if k else y)
            last.append(ends)
        x = torch.cat(outputs, 2) if both else outputs[0]
    return x, [torch.stack(part) for part in zip(*last, strict=True)]


def _direction(
    cell: Cell,
    x: Tensor,
    states: list[Tensor],
    weights: list[Tensor],
    context: KernelContext,
    packing: Packing | None,
) -> tuple[Tensor, list[Tensor]]:
    """One layer in one direction: all outputs, and the last states."""
    w_in, w, *biases = weights
    b_in, b = biases or (None, None)
    h, c = states[0], states[1] if len(states) == 2 else x.new_zeros(len(x), 0)
    y, c = recurrence(F.linear(x, w_in, b_in), (h, c), w, b, cell, context, packing)
    h = y[:, -1] if packing is None else packing.last(y.transpose(0, 1))
    return y, [h, c][: len(states)]
