"""The fused cell of LSTMs, which torch has for accelerators only, for the test device."""

import torch


def _lstm_cell(input_gates, hidden_gates, c, *biases):
    gates = input_gates + hidden_gates + sum(b for b in biases if b is not None)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    following = f * c + i * g
    return o * following.tanh(), following, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(by_h, by_c, c, following, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, 1)
    t = following.tanh()
    by_h = torch.zeros_like(c) if by_h is None else by_h
    total = by_h * o * (1 - t * t) + (0 if by_c is None else by_c)
    parts = total * g * i * (1 - i), total * c * f * (1 - f), total * i * (1 - g * g)
    gates = torch.cat([*parts, by_h * t * o * (1 - o)], 1)
    return gates, total * f, gates.sum(0) if has_bias else None


CELLS = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
}
