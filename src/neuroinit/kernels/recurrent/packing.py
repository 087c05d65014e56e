"""Packed sequences as a padded batch with one row per sample, and back.

A ``PackedSequence`` holds the first steps of all sequences, then the second ones, and so on, with
the longest sequence first. Here they become ``(samples, steps, features)`` in the order of the
samples, so that the rows of a piece are consecutive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where the steps of packed sequences are in a padded batch.

    Args:
        running: For every step, 1 for sequences that reach it and 0 for others, ``(samples, 1)``;
            ``None`` if all reach it.
        padded_from: Row of the packed data for every sample and step, ``(samples * steps,)``;
            0 where a sequence has ended.
        packed_from: The inverse: sample and step of every row of the packed data.
        reversed_from: Sample and step for every sample and step of the reversed sequences.
        order: The sample of every packed sequence.
        places: The inverse: the packed sequence of every sample.
        ends: The last step of every sample.
    """

    running: Sequence[Tensor | None]
    padded_from: Tensor
    packed_from: Tensor
    reversed_from: Tensor
    order: Tensor
    places: Tensor
    ends: Tensor

    def padded(self, data: Tensor) -> Tensor:
        """``(samples, steps, features)`` from packed data ``(rows, features)``."""
        return select(data, 0, self.padded_from).view(len(self.ends), -1, data.shape[1])

    def packed(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`padded`."""
        return select(x.flatten(0, 1), 0, self.packed_from)

    def reversed(self, x: Tensor) -> Tensor:
        """The steps of every sequence in reversed order; its own inverse."""
        return select(x.flatten(0, 1), 0, self.reversed_from).view(x.shape)

    def last(self, states: Tensor) -> Tensor:
        """The state at the end of every sequence, from ``(steps, samples, features)``."""
        count = len(self.ends)
        rows = self.ends * count + torch.arange(count, device=states.device)
        return select(states.flatten(0, 1), 0, rows)

    def at_ends(self, g: Tensor) -> Tensor:
        """The backward of :meth:`last`: gradients by the first state and those after each step."""
        grid = g.new_zeros(len(self.running) + 1, *g.shape)
        grid[self.ends + 1, torch.arange(len(g), device=g.device)] = g
        return grid


def packing_of(batch_sizes: Tensor, order: Tensor | None, like: Tensor) -> Packing:
    """The positions of packed sequences.

    Args:
        batch_sizes: The number of sequences that reach each step, on the CPU.
        order: The sample of every packed sequence; ``None`` if they are in the order of samples.
        like: A tensor of the device and the dtype of the activations.
    """
    steps, count = len(batch_sizes), int(batch_sizes[0])
    sequences, t = (torch.arange(n, device="cpu") for n in (count, steps))
    order = sequences if order is None else order
    places = torch.argsort(order)
    lengths = (batch_sizes > sequences[:, None]).sum(1)[places]
    rows = torch.cumsum(batch_sizes, 0) - batch_sizes + places[:, None]
    running = t < lengths[:, None]
    cells = sequences[:, None] * steps + t
    packed_from = torch.empty(int(batch_sizes.sum()), dtype=torch.int64, device="cpu")
    packed_from[rows[running]] = cells[running]
    flipped = torch.where(running, lengths[:, None] - 1 - t, t) + sequences[:, None] * steps
    indices = torch.where(running, rows, 0).flatten(), packed_from, flipped.flatten()
    own = [i.to(like.device) for i in (*indices, order, places, lengths - 1)]
    masks = running.T[:, :, None].to(like.device, like.dtype).unbind()
    ended = (batch_sizes < count).tolist()
    found: list[Tensor | None] = [m if e else None for m, e in zip(masks, ended, strict=True)]
    return Packing(found, *own)


def select(x: Tensor, dim: int, rows: Tensor) -> Tensor:
    """``x.index_select(dim, rows)``, not noted as a call of the model, see ``sample_order.py``."""
    with torch._C.DisableTorchFunction():
        return x.index_select(dim, rows)
