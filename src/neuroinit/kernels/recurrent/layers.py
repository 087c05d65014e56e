"""``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` from linear layers and ``recurrence.py``.

torch's double backward of a recurrent layer is slow, and gives no gradient for each piece.
A step of NIO in training steps (32 samples, 32 time steps, D=8; one thread, torch 2.13): two layers
of LSTM with 64 features 52 by torch's operators and 9.8 by these, with 128 features 8.0; GRU 4.8,
RNN 5.6; one bidirectional layer of LSTM 8.8. Packed sequences are left to torch: they may be sorted
by length, so that it is not known which sample belongs to which piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.kernels.context import KernelContext, transforms_active
from neuroinit.kernels.recurrent.cells import GRU, LSTM, RNN, Cell
from neuroinit.kernels.recurrent.recurrence import recurrence

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

    ``None`` leaves the call to torch: there are neither scales nor pieces, the sequences are
    packed, an LSTM has projections, or dtypes differ.

    Args:
        name: The name of torch's function.
        args: Its arguments: input, states, weights, whether there are biases, layers, dropout,
            training, whether it is bidirectional, whether samples come first.
        context: Scales and pieces.
    """
    if not context or len(args) != 9 or isinstance(args[2], Tensor) or transforms_active():
        return None
    x, state, weights, biased, layers, _, _, both, samples_first = args
    states = state if isinstance(state, (tuple, list)) else (state,)
    per_layer = 4 if biased else 2
    groups = [weights[i : i + per_layer] for i in range(0, len(weights), per_layer)]
    alike = all(t.dtype == x.dtype for t in (*weights, *states))
    known = all(_is_known(w, context) for group in groups for w in group[:2])
    if not alike or not known or len(groups) != layers * (1 + both) or x.dim() != 3:
        return None
    x = x if samples_first else x.transpose(0, 1)
    cell = CELLS[name]()
    last: list[list[Tensor]] = []
    for layer in range(layers):
        outputs = []
        for k in range(1 + both):
            place = layer * (1 + both) + k
            own = [s[place] for s in states]
            y, ends = _direction(cell, x.flip(1) if k else x, own, groups[place], context)
            outputs.append(y.flip(1) if k else y)
            last.append(ends)
        x = torch.cat(outputs, 2) if both else outputs[0]
    stacked = tuple(torch.stack(part) for part in zip(*last, strict=True))
    return (x if samples_first else x.transpose(0, 1)), *stacked


def _is_known(weight: Tensor, context: KernelContext) -> bool:
    """Whether the derivative by a weight is taken by its scale or its leaf."""
    pieces = context.pieces
    return id(weight) in context.scales or (pieces is not None and id(weight) in pieces.leaves)


def _direction(
    cell: Cell, x: Tensor, states: list[Tensor], weights: list[Tensor], context: KernelContext
) -> tuple[Tensor, list[Tensor]]:
    """One layer in one direction: all outputs, and the last states."""
    w_in, w, *biases = weights
    b_in, b = biases or (None, None)
    h, c = states[0], states[1] if len(states) == 2 else x.new_zeros(len(x), 0)
    y, c = recurrence(F.linear(x, w_in, b_in), (h, c), w, b, cell, context)
    return y, [y[:, -1], c][: len(states)]
