"""Passes through the time steps of a recurrent layer, for ``recurrence.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from neuroinit.kernels.recurrent.cells import Cell, Coefficients
from neuroinit.kernels.recurrent.packing import Packing

T = TypeVar("T", Tensor, Tensor | None)


def forward_through_time(
    cell: Cell,
    u: Tensor,
    h: Tensor,
    c: Tensor,
    w: Tensor,
    b: Tensor | None,
    packing: Packing | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``W h`` of every step, and all states ``h`` and ``c`` from the first on."""
    products, hs, cs, transposed = [], [h], [c], w.T
    for t, u_t in enumerate(u.transpose(0, 1).contiguous()):
        product = h @ transposed
        h, c = running(packing, t, *cell.step(u_t, with_bias(product, b), h, c))
        products.append(product)
        hs.append(h)
        cs.append(c)
    return torch.stack(products), torch.stack(hs), torch.stack(cs)


class BackwardThroughTime:
    """A pass backward through time.

    Args:
        j: The coefficients of all steps.
        cell: The cell.
        gh: Gradients by the outputs, ``(samples, steps, features)``.
        gc: The gradient by the last ``c``.
        w: The weight.
        added: Tensors to add to the gradients by ``u, q, h, c`` and again ``h``, for every step.

    Attributes:
        gu: ``(steps, samples, ...)``; likewise ``gq``, and the gradients ``by_h`` and ``by_c`` by
            the state after every step.
        gh: The gradient by the first ``h``; likewise ``gc``.
    """

    def __init__(
        self,
        j: Sequence[Tensor],
        cell: Cell,
        gh: Tensor | None,
        gc: Tensor,
        w: Tensor,
        added: tuple[Tensor | None, ...] = (None,) * 5,
    ) -> None:
        outputs = None if gh is None else gh.transpose(0, 1).unbind()
        state = j[0].new_zeros(len(gc), w.shape[1])
        by_u, by_q, by_h, by_c, again = (None if e is None else e.unbind() for e in added)
        rows: list[tuple[Tensor, ...]] = []
        for t, j_t in reversed(list(enumerate(by_step(j)))):
            state = state if outputs is None else state + outputs[t]
            reached = state, gc
            gu, gq, direct, gc = cell.pull(j_t, state, gc)
            gu, gq, gc = _plus(gu, by_u, t), _plus(gq, by_q, t), _plus(gc, by_c, t)
            direct = _plus(_plus(direct, by_h, t), again, t)
            state = gq @ w if direct is None else torch.addmm(direct, gq, w)
            rows.append((gu, gq, *reached))
        parts = [torch.stack(part[::-1]) for part in zip(*rows, strict=True)]
        self.gu, self.gq, self.by_h, self.by_c = parts
        self.gh, self.gc = state, gc


def _plus(gradient: T, steps: Sequence[Tensor] | None, t: int) -> T:
    """The sum of a gradient and a tensor of step ``t``; either may be ``None``."""
    if steps is None:
        return gradient
    return steps[t] if gradient is None else gradient + steps[t]


def running(packing: Packing | None, t: int, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The states after step ``t``, zero where a sequence has ended: what follows stays finite."""
    mask = None if packing is None else packing.running[t]
    return (h, c) if mask is None else (h * mask, c * mask)


def with_bias(products: Tensor, b: Tensor | None) -> Tensor:
    """``W h + b`` from ``W h``."""
    return products if b is None else products + b


def coefficients(cell: Cell, u: Tensor, b: Tensor | None, states: Sequence[Tensor]) -> Coefficients:
    """The coefficients of all steps, with the steps as first dimension."""
    products, hs, cs = states
    return cell.coefficients(u.transpose(0, 1), with_bias(products, b), hs[:-1], cs[:-1])


def by_step(j: Sequence[Tensor]) -> list[Coefficients]:
    """The coefficients of every step, from those of all."""
    return list(zip(*(part.unbind() for part in j), strict=True))


def curvature(
    cell: Cell, primal: Sequence[Tensor], adjoint: Sequence[Tensor], tangent: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The derivative by ``u, q, h, c`` of ``<adjoint, J tangent>``, ``J`` the cells' Jacobians."""
    with torch.enable_grad():
        inputs = [part.detach().requires_grad_() for part in primal]
        pulled = cell.pull(cell.coefficients(*inputs), *adjoint)
        pairs = [(g, d) for g, d in zip(pulled, tangent, strict=True) if g is not None]
        total = torch.stack([(g * d).sum() for g, d in pairs]).sum()
        if not total.requires_grad:  # ReLU
            return None, None, None, None
        return torch.autograd.grad(total, inputs, allow_unused=True)


def plain_gradients(
    cell: Cell,
    gradients: tuple[Tensor, Tensor],
    u: Tensor,
    h: Tensor,
    c: Tensor,
    w: Tensor,
    b: Tensor | None,
    packing: Packing | None,
) -> tuple[Tensor | None, ...]:
    """The gradients from operators of torch that can be differentiated any number of times."""
    inputs, outputs, cs = (u, h, c, w, b), [], []
    with torch.enable_grad():
        for t, u_t in enumerate(u.unbind(1)):
            h, c = running(packing, t, *cell.step(u_t, with_bias(h @ w.T, b), h, c))
            outputs.append(h)
            cs.append(c)
        c = c if packing is None else packing.last(torch.stack(cs))
        given = [t for t in inputs if t is not None and t.requires_grad]
        found = torch.autograd.grad(
            [torch.stack(outputs, 1), *([c] if c.requires_grad else [])],
            given,
            gradients[: 2 if c.requires_grad else 1],
            create_graph=True,
            allow_unused=True,
        )
    by_id = {id(t): g for t, g in zip(given, found, strict=True)}
    return tuple(by_id.get(id(t)) for t in inputs)
