"""A recurrent layer as one autograd function, with a double backward and gradients of pieces.

With ``q_t = W h_{t-1} + b`` and ``s_t = cell(u_t, q_t, s_{t-1})``, the first backward goes through
time once for the gradients ``gu_t, gq_t``; the gradient ``gW = sum_t gq_t h_{t-1}^T`` is one
product for all steps, and for all pieces. For directions ``a, v, vb`` the second backward
differentiates ``<a, gu> + <v, gW> + <vb, gb>``. That is ``<gh, dh>`` with the change ``dh`` of the
outputs along the directions, so it takes

1. a pass forward for ``dh``, which is the derivative by ``gh``, with
   ``dq_t = W dh_{t-1} + v h_{t-1} + vb``;
2. the curvature of the cells, of all steps at once, by autograd;
3. a pass backward through time as the first one, to which the curvature and ``v^T gq_t`` are
   added.

The derivative by the scale of ``W`` is an inner product with ``W h`` and ``W dh``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.tensors import dot
from neuroinit.kernels.context import (
    KernelContext,
    Saved,
    Slices,
    leaf_gradients,
    without_function_mode,
)
from neuroinit.kernels.products.bilinear import Linear
from neuroinit.kernels.products.piece_products import (
    add_forward,
    input_gradients,
    weight_and_bias_gradients,
)
from neuroinit.kernels.recurrent.cells import Cell
from neuroinit.kernels.recurrent.packing import Packing
from neuroinit.kernels.recurrent.through_time import (
    BackwardThroughTime,
    by_step,
    curvature,
    forward_through_time,
    plain_gradients,
    running,
)

LINEAR = Linear()


def recurrence(
    u: Tensor,
    state: tuple[Tensor, Tensor],
    weight: Tensor,
    bias: Tensor | None,
    cell: Cell,
    context: KernelContext,
    packing: Packing | None,
) -> tuple[Tensor, Tensor]:
    """All outputs ``h`` of shape ``(samples, steps, features)``, and the last ``c``.

    Args:
        u: The input's part, of shape ``(samples, steps, gates * features)``.
        state: The first ``h`` and ``c``; a cell without ``c`` has one of shape ``(samples, 0)``.
        weight: ``W``, of shape ``(gates * features, features)``.
        bias: ``b``, of shape ``(gates * features,)``.
        cell: The cell.
        context: Scales and pieces.
        packing: The lengths of the sequences; ``None`` if all have the same.
    """
    pieces = context.pieces
    leaves: tuple[Tensor | None, Tensor | None, Slices] = None, None, None
    if pieces is not None:
        leaves = pieces.leaf(weight), pieces.leaf(bias), pieces.slices(u)
    settings = context.scales.get(id(weight)), *leaves[:2], cell, context, leaves[2], packing
    found: tuple[Tensor, Tensor] = _Recurrence.apply(u, *state, weight, bias, *settings)  # type: ignore[no-untyped-call]
    return found


class _Recurrence(torch.autograd.Function):
    """See :func:`recurrence`; its gradient depends on the pass, see ``context.py``."""

    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        h: Tensor,
        c: Tensor,
        w: Tensor,
        b: Tensor | None,
        scale: Tensor | None,
        leaf: Tensor | None,
        leaf_b: Tensor | None,
        cell: Cell,
        context: KernelContext,
        slices: Slices,
        packing: Packing | None,
    ) -> tuple[Tensor, Tensor]:
        with torch._C.DisableTorchFunction():  # nothing to replace in the many small operators
            hs, cs, j = forward_through_time(cell, u, h, c, w, b, packing)
        ctx.save_for_backward(u, h, c, w, b, scale, hs, cs, *j)
        ctx.cell, ctx.context, ctx.slices, ctx.packing = cell, context, slices, packing
        return hs[1:].transpose(0, 1).contiguous(), _last(cs[1:], packing)

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gh: Tensor, gc: Tensor) -> tuple[Tensor | None, ...]:
        u, h, c, w, b, scale, hs, cs, *j = saved
        cell, needed, packing = ctx.cell, ctx.needs_input_grad, ctx.packing
        if ctx.context.second_backward:
            own = _backward(j, cell, gh, gc, w, packing)
            gs = dot(own.gq, _products(hs, w)) if needed[5] else None
            gb = own.gq.sum((0, 1)) if needed[4] else None
            return own.gu, own.gh, own.gc, None, gb, gs, *[None] * 6
        separate = ctx.context.first_backward and ctx.slices is not None
        wanted = needed[6:8] if separate else needed[3:5]
        found: tuple[Tensor | None, ...]
        if ctx.context.first_backward and not torch.is_grad_enabled():
            own = _backward(j, cell, gh, gc, w, packing)
            found = own.gu, own.gh, own.gc, *_weight_and_bias(own, hs, w, ctx.slices, wanted)
        elif ctx.context.first_backward:
            settings = scale, hs, cs, cell, wanted, ctx.slices, packing, *j
            found = _RecurrenceGradients.apply(gh, gc, u, h, c, w, b, *settings)  # type: ignore[no-untyped-call]
        else:
            found = plain_gradients(cell, (gh, gc), u, h, c, w, b, packing)
        by_u, by_h, by_c, gw, gb = found
        by_w, by_b, *by_leaves = leaf_gradients(separate, gw, gb)
        return by_u, by_h, by_c, by_w, by_b, None, *by_leaves, *[None] * 4


class _RecurrenceGradients(torch.autograd.Function):
    """``gu``, the gradients by the first state, ``gw`` and ``gb``; with slices those of each."""

    @staticmethod
    def forward(
        ctx: Any,
        gh: Tensor,
        gc: Tensor,
        u: Tensor,
        h: Tensor,
        c: Tensor,
        w: Tensor,
        b: Tensor | None,
        scale: Tensor | None,
        hs: Tensor,
        cs: Tensor,
        cell: Cell,
        wanted: Sequence[bool],
        slices: Slices,
        packing: Packing | None,
        *j: Tensor,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        own = _backward(j, cell, gh, gc, w, packing)
        ctx.save_for_backward(u, w, b, hs, cs, own.gq, *own.by_states, *j)
        ctx.cell, ctx.slices, ctx.packing = cell, slices, packing
        return own.gu, own.gh, own.gc, *_weight_and_bias(own, hs, w, slices, wanted)

    @staticmethod
    @without_function_mode
    def backward(
        ctx: Any,
        saved: Saved,
        du: Tensor | None,
        dh: Tensor | None,
        dc: Tensor | None,
        v: Tensor | None,
        vb: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        u, w, b, hs, cs, gq, by_h, by_c, *j = saved
        cell, slices, before = ctx.cell, ctx.slices, hs[:-1].transpose(0, 1)
        du = torch.zeros_like(u) if du is None else du
        dh = torch.zeros_like(hs[0]) if dh is None else dh
        dc = torch.zeros_like(cs[0]) if dc is None else dc
        dq, ggq = torch.zeros_like(u), None
        if v is None and vb is not None:
            v = w.new_zeros(w.shape if slices is None else (len(vb), *w.shape))
        if v is not None:
            dq = add_forward(LINEAR, slices, before, v, vb, None)
            ggq = input_gradients(LINEAR, gq, before, v, slices).transpose(0, 1)
        du, dq = du.transpose(0, 1).contiguous(), dq.transpose(0, 1).contiguous()
        moved, dhs, dcs = [], [dh], [dc]
        for t, j_t in enumerate(by_step(j)):
            moved.append(dhs[-1] @ w.T)
            pushed = cell.push(j_t, du[t], dq[t] + moved[-1], dhs[-1], dcs[-1])
            dh, dc = running(ctx.packing, t, *pushed)
            dhs.append(dh)
            dcs.append(dc)
        changes, products = torch.stack(moved), _products(hs, w).transpose(0, 1)
        primal = u.transpose(0, 1), products if b is None else products + b, hs[:-1], cs[:-1]
        tangent = du, dq + changes, torch.stack(dhs[:-1]), torch.stack(dcs[:-1])
        added = curvature(cell, primal, (by_h, by_c), tangent)
        own = BackwardThroughTime(j, cell, None, torch.zeros_like(dc), w, (*added, ggq))
        gs = None
        if ctx.needs_input_grad[7]:
            gs = dot(gq.transpose(0, 1), changes) + dot(own.gq.transpose(0, 1), products)
        gb = own.gq.sum((0, 1)) if ctx.needs_input_grad[6] else None
        by_gc = dc if ctx.packing is None else ctx.packing.last(torch.stack(dcs[1:]))
        found = torch.stack(dhs[1:], 1), by_gc, own.gu, own.gh, own.gc, None, gb, gs
        return *found, *[None] * (6 + len(j))


def _products(hs: Tensor, w: Tensor) -> Tensor:
    """``W h`` of every step, of shape ``(samples, steps, ...)``, from all states ``h``."""
    return hs[:-1].transpose(0, 1) @ w.T


def _weight_and_bias(
    own: BackwardThroughTime, hs: Tensor, w: Tensor, slices: Slices, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """``gw`` and ``gb``, with slices those of each, as far as they are wanted."""
    before = hs[:-1].transpose(0, 1)
    return weight_and_bias_gradients(LINEAR, own.gq, before, w, slices, *wanted)


def _last(states: Tensor, packing: Packing | None) -> Tensor:
    """The state at the end of every sequence, from those after every step."""
    return states[-1].clone() if packing is None else packing.last(states)


def _backward(
    j: Sequence[Tensor], cell: Cell, gh: Tensor, gc: Tensor, w: Tensor, packing: Packing | None
) -> BackwardThroughTime:
    """The pass backward through time, from the gradients by the outputs and the last ``c``."""
    if packing is None:
        return BackwardThroughTime(j, cell, gh, gc, w)
    at_ends = packing.at_ends(gc)
    return BackwardThroughTime(j, cell, gh, at_ends[-1], w, (None, None, None, at_ends[:-1], None))
