"""The cells of recurrent layers, and their derivatives.

One step of a recurrent layer is ``s_t = cell(u_t, q_t, s_{t-1})`` with the input's part ``u_t``,
the hidden state's part ``q_t = W h_{t-1} + b`` and a state ``s = (h, c)``; only an LSTM has ``c``.
A cell is elementwise, so its Jacobian is a few tensors of coefficients, which are computed for all
steps at once. ``pull`` multiplies by the Jacobian's transpose, ``push`` by the Jacobian. Gates have
the order of torch's weights.
"""

from __future__ import annotations

import abc

import torch
from torch import Tensor

Coefficients = tuple[Tensor, ...]


class Cell(abc.ABC):
    """A cell; all tensors have the shape ``(..., features)``."""

    @abc.abstractmethod
    def step(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The next state."""

    @abc.abstractmethod
    def coefficients(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> Coefficients:
        """The Jacobian of :meth:`step`."""

    @abc.abstractmethod
    def pull(
        self, j: Coefficients, gh: Tensor, gc: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """The gradients by ``u``, ``q``, ``h`` (``None`` for zero) and ``c`` of a step."""

    @abc.abstractmethod
    def push(
        self, j: Coefficients, u: Tensor, q: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The change of the next state, from changes of ``u``, ``q``, ``h`` and ``c``."""


class RNN(Cell):
    """``h_t = tanh(u + q)``, or with ReLU."""

    def __init__(self, relu: bool = False) -> None:
        self.relu = relu

    def step(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        return (torch.relu(u + q) if self.relu else torch.tanh(u + q)), c

    def coefficients(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> Coefficients:
        """See :class:`Cell`."""
        if self.relu:
            return (((u + q) > 0).to(u),)
        return (1 - torch.tanh(u + q).square(),)

    def pull(
        self, j: Coefficients, gh: Tensor, gc: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """See :class:`Cell`."""
        g = gh * j[0]
        return g, g, None, gc

    def push(
        self, j: Coefficients, u: Tensor, q: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        return (u + q) * j[0], c


class LSTM(Cell):
    """``c_t = f c + i g``, ``h_t = o tanh(c_t)``; ``i, f, o`` are sigmoids, ``g`` is a tanh."""

    def _gates(self, u: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        n = u.shape[-1] // 4
        first, g, o = torch.split(u + q, [2 * n, n, n], -1)
        i, f = first.sigmoid().chunk(2, -1)
        return i, f, g.tanh(), o.sigmoid()

    def step(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        i, f, g, o = self._gates(u, q)
        c = torch.addcmul(f * c, i, g)
        return o * c.tanh(), c

    def coefficients(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> Coefficients:
        """See :class:`Cell`."""
        i, f, g, o = self._gates(u, q)
        t = (f * c + i * g).tanh()
        gates = [g * i * (1 - i), c * f * (1 - f), i * (1 - g * g), t * o * (1 - o)]
        return torch.cat(gates, -1), f, o * (1 - t * t)

    def pull(
        self, j: Coefficients, gh: Tensor, gc: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """See :class:`Cell`."""
        gates, f, by_c = j
        gc = torch.addcmul(gc, gh, by_c)
        g = torch.cat([gc, gc, gc, gh], -1) * gates
        return g, g, None, gc * f

    def push(
        self, j: Coefficients, u: Tensor, q: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        gates, f, by_c = j
        by_i, by_f, by_g, by_o = ((u + q) * gates).chunk(4, -1)
        c = torch.addcmul(by_i + by_f + by_g, f, c)
        return torch.addcmul(by_o, by_c, c), c


class GRU(Cell):
    """``h_t = n + z (h - n)``, ``n = tanh(u_n + r q_n)``; ``r, z`` are sigmoids of ``u + q``."""

    def _gates(self, u: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        (ur, uz, un), (qr, qz, qn) = u.chunk(3, -1), q.chunk(3, -1)
        r = (ur + qr).sigmoid()
        return r, (uz + qz).sigmoid(), torch.tanh(un + r * qn), qn

    def step(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        _, z, n, _ = self._gates(u, q)
        return torch.addcmul(n, z, h - n), c

    def coefficients(self, u: Tensor, q: Tensor, h: Tensor, c: Tensor) -> Coefficients:
        """See :class:`Cell`."""
        r, z, n, qn = self._gates(u, q)
        by_n = (1 - z) * (1 - n * n)
        by_r, by_z = by_n * qn * r * (1 - r), (h - n) * z * (1 - z)
        return torch.cat([by_r, by_z, by_n], -1), torch.cat([by_r, by_z, by_n * r], -1), z

    def pull(
        self, j: Coefficients, gh: Tensor, gc: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """See :class:`Cell`."""
        by_u, by_q, z = j
        g = torch.cat([gh, gh, gh], -1)
        return g * by_u, g * by_q, gh * z, gc

    def push(
        self, j: Coefficients, u: Tensor, q: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        by_u, by_q, z = j
        by_r, by_z, by_n = torch.addcmul(by_u * u, by_q, q).chunk(3, -1)
        return torch.addcmul(by_r + by_z + by_n, z, h), c
