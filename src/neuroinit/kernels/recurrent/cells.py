"""The cells of recurrent layers, and their derivatives.

One step of a recurrent layer is ``s_t = cell(u_t, q_t, s_{t-1})`` with the input's part ``u_t``,
the hidden state's part ``q_t = W h_{t-1} + b`` and a state ``s = (h, c)``; only an LSTM has ``c``.
A cell computes its gates from ``u`` and ``q``, and the next state from the gates. It is
elementwise, so its Jacobian is a few tensors of coefficients, which are computed from the gates of
all steps at once. ``pull`` multiplies by the Jacobian's transpose, ``push`` by the Jacobian. Gates
have the order of torch's weights.
"""

from __future__ import annotations

import abc

import torch
from torch import Tensor

Gates = tuple[Tensor, ...]
Coefficients = tuple[Tensor, ...]


class Cell(abc.ABC):
    """A cell; all tensors have the shape ``(..., features)``."""

    @abc.abstractmethod
    def gates(self, u: Tensor, q: Tensor) -> Gates:
        """What the next state and the Jacobian are computed from."""

    @abc.abstractmethod
    def state(self, gates: Gates, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The next state, from the gates and the state before."""

    @abc.abstractmethod
    def coefficients(self, gates: Gates, h: Tensor, c: Tensor) -> Coefficients:
        """The Jacobian of a step, from the gates and the state before."""

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

    def gates(self, u: Tensor, q: Tensor) -> Gates:
        """See :class:`Cell`."""
        return (torch.relu(u + q) if self.relu else torch.tanh(u + q),)

    def state(self, gates: Gates, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        return gates[0], c

    def coefficients(self, gates: Gates, h: Tensor, c: Tensor) -> Coefficients:
        """See :class:`Cell`."""
        if self.relu:
            return ((gates[0] > 0).to(h),)
        return (1 - gates[0].square(),)

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

    def gates(self, u: Tensor, q: Tensor) -> Gates:
        """See :class:`Cell`."""
        n = u.shape[-1] // 4
        first, g, o = torch.split(u + q, [2 * n, n, n], -1)
        i, f = first.sigmoid().chunk(2, -1)
        return i, f, g.tanh(), o.sigmoid()

    def state(self, gates: Gates, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        i, f, g, o = gates
        c = torch.addcmul(f * c, i, g)
        return o * c.tanh(), c

    def coefficients(self, gates: Gates, h: Tensor, c: Tensor) -> Coefficients:
        """See :class:`Cell`."""
        i, f, g, o = gates
        t = torch.addcmul(f * c, i, g).tanh()
        by_pre = [g * i * (1 - i), c * f * (1 - f), i * (1 - g * g), t * o * (1 - o)]
        return torch.cat(by_pre, -1), f, o * (1 - t * t)

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

    def gates(self, u: Tensor, q: Tensor) -> Gates:
        """See :class:`Cell`."""
        (ur, uz, un), (qr, qz, qn) = u.chunk(3, -1), q.chunk(3, -1)
        r = (ur + qr).sigmoid()
        return r, (uz + qz).sigmoid(), torch.tanh(un + r * qn), qn

    def state(self, gates: Gates, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Cell`."""
        _, z, n, _ = gates
        return torch.addcmul(n, z, h - n), c

    def coefficients(self, gates: Gates, h: Tensor, c: Tensor) -> Coefficients:
        """See :class:`Cell`."""
        r, z, n, qn = gates
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
