"""Passes through the time steps of a recurrent layer, for ``recurrence.py``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from neuroinit.kernels.recurrent.cells import Cell, Coefficients, Gates
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
) -> tuple[Tensor, Tensor, Coefficients]:
    """All states ``h`` and ``c`` from the first on, and the coefficients of all steps."""
    hs, cs, rows, transposed = [h], [c], list[Gates](), w.T
    for t, u_t in enumerate(u.unbind(1)):
        gates = cell.gates(u_t, _product(h, transposed, b))
        h, c = running(packing, t, *cell.state(gates, h, c))
        rows.append(gates)
        hs.append(h)
        cs.append(c)
    gates, all_h, all_c = _stacked(rows), torch.stack(hs), torch.stack(cs)
    return all_h, all_c, cell.coefficients(gates, all_h[:-1], all_c[:-1])


def _product(h: Tensor, transposed: Tensor, b: Tensor | None) -> Tensor:
    """``q = W h + b``."""
    return h @ transposed if b is None else torch.addmm(b, h, transposed)


def _stacked(rows: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Tensors of all steps, with the steps as first dimension."""
    return tuple(torch.stack(part) for part in zip(*rows, strict=True))


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
        self._rows: list[tuple[Tensor, ...]] = []
        for t, j_t in reversed(list(enumerate(by_step(j)))):
            state = state if outputs is None else state + outputs[t]
            reached = state, gc
            gu, gq, direct, gc = cell.pull(j_t, state, gc)
            gu, gq, gc = _plus(gu, by_u, t), _plus(gq, by_q, t), _plus(gc, by_c, t)
            direct = _plus(_plus(direct, by_h, t), again, t)
            state = gq @ w if direct is None else torch.addmm(direct, gq, w)
            self._rows.append((gu, gq, *reached))
        self._rows.reverse()
        self.gh, self.gc = state, gc

    @cached_property
    def gq(self) -> Tensor:
        """The gradients by ``q``, of shape ``(samples, steps, ...)``."""
        return torch.stack([row[1] for row in self._rows], 1)

    @cached_property
    def gu(self) -> Tensor:
        """The gradients by ``u``, of shape ``(samples, steps, ...)``."""
        same = self._rows[0][0] is self._rows[0][1]
        return self.gq if same else torch.stack([row[0] for row in self._rows], 1)

    @property
    def by_states(self) -> tuple[Tensor, ...]:
        """The gradients by ``h`` and ``c`` after every step, of shape ``(steps, samples, ...)``."""
        return _stacked([row[2:] for row in self._rows])


def _plus(gradient: T, steps: Sequence[Tensor] | None, t: int) -> T:
    """The sum of a gradient and a tensor of step ``t``; either may be ``None``."""
    if steps is None:
        return gradient
    return steps[t] if gradient is None else gradient + steps[t]


def running(packing: Packing | None, t: int, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The states after step ``t``, zero where a sequence has ended: what follows stays finite."""
    mask = None if packing is None else packing.running[t]
    return (h, c) if mask is None else (h * mask, c * mask)


def by_step(j: Sequence[Tensor]) -> list[Coefficients]:
    """The coefficients of every step, from those of all."""
    return list(zip(*(part.unbind() for part in j), strict=True))


def curvature(
    cell: Cell, primal: Sequence[Tensor], adjoint: Sequence[Tensor], tangent: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The derivative by ``u, q, h, c`` of ``<adjoint, J tangent>``, ``J`` the cells' Jacobians."""
    with torch.enable_grad():
        inputs = [part.detach().requires_grad_() for part in primal]
        u, q, *state = inputs
        pulled = cell.pull(cell.coefficients(cell.gates(u, q), *state), *adjoint)
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
            gates = cell.gates(u_t, _product(h, w.T, b))
            h, c = running(packing, t, *cell.state(gates, h, c))
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
