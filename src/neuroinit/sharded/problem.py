"""A model whose parameters are spread over the ranks: FSDP2's ``fully_shard``, tensor parallelism.

``torch.autograd.grad`` sees no sharded parameter, and no graph of a gradient can be had: everything
goes through ``.backward()``. What is called ``theta`` here are this rank's shards, inner products
are summed over the ranks, and every rank takes part in every pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import Interval, batch_size, cut
from neuroinit.common.errors import listed
from neuroinit.common.tensors import filled, flatten, gram_matrix, narrow
from neuroinit.distributed.dtensor import fully_sharded, local, replicas, reshard
from neuroinit.distributed.ranks import Ranks
from neuroinit.gradients.plan import part
from neuroinit.model.borrowing import borrowed
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.model.selection import Selection

CLOSE = 1e-3  # how well the gradients of parts of a batch have to make up that of the whole


class ShardedProblem(Problem):
    """A sharded model and its loss, as functions of this rank's shards of the parameters.

    Args:
        model: A module with DTensor parameters.
        loss_fn: As for :class:`Problem`.
        compute_loss: As for :class:`Problem`.
        selection: Which parameters take part; none can be drawn.
        shards: The ranks that hold the shards.
    """

    sharded = True

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: LossFunction | None,
        compute_loss: ComputeLoss | None,
        selection: Selection,
        shards: Ranks,
    ) -> None:
        super().__init__(model, loss_fn, compute_loss, selection)
        if self.drawn:
            raise ValueError(
                f"A sharded model cannot get fresh values for {listed(list(self.drawn))}. "
                "Initialize it before it is sharded."
            )
        self.shards = shards
        self.tells_pieces = False
        self.independence = {False: False, True: False}  # pieces are not cut any further
        self.original = {n: local(p).detach().clone() for n, p in self.parameters.items()}
        self.start = self._theta = self.original
        self.copies = {n: replicas(p, shards.world) for n, p in self.parameters.items()}
        self._spread = False

    # -- sums over shards --------------------------------------------------------------------------

    def over_shards(self, values: Tensor, names: Sequence[str]) -> Tensor:
        """What every rank has found of its shards, one row a name, summed over the shards."""
        weights = torch.tensor([1 / self.copies[n] for n in names], dtype=torch.float64)
        shape = (-1, *[1] * (values.dim() - 1))
        return self.shards.sum(narrow(values) * weights.reshape(shape))

    def norm(self, gradient: Tensor) -> Tensor:
        """The norm of a gradient of which every rank has shards."""
        return self.gram([gradient])[0, 0].sqrt()

    def gram(self, gradients: Sequence[Tensor]) -> Tensor:
        """The Gram matrix of gradients of which every rank has shards."""
        names = self.differentiated
        sizes = [t.numel() for t in self.theta(names)]
        parts = [torch.split(g, sizes) for g in gradients]
        grams = torch.stack([gram_matrix([p[k] for p in parts]) for k in range(len(names))])
        return self.over_shards(grams, names).sum(0)

    # -- passes ------------------------------------------------------------------------------------

    @contextmanager
    def session(self, second_order: bool = False, marked: bool = False) -> Iterator[None]:
        """The scaled values in the model's own parameters; afterwards those that were there."""
        gradients = {n: p.grad for n, p in self.parameters.items()}
        reshard(self.model)
        with borrowed(self.model, second_order) as self._buffers:
            try:
                self._write(self._theta)
                yield
            finally:
                reshard(self.model)
                self._write(self.original)
                for name, parameter in self.parameters.items():
                    parameter.grad = gradients[name]
                self._buffers = []

    @torch.no_grad()
    def _write(self, values: dict[str, Tensor]) -> None:
        for name, parameter in self.parameters.items():
            local(parameter).copy_(values[name])

    def gradient(
        self, loss: Tensor, names: Sequence[str], create_graph: bool, retain_graph: bool
    ) -> tuple[Tensor | None, ...]:
        """This rank's shards of the gradient, by ``.backward()``."""
        for parameter in self.parameters.values():
            parameter.grad = None
        loss.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        return tuple(self._found(n) for n in names)

    def _found(self, name: str) -> Tensor | None:
        parameter = self.parameters[name]
        found = parameter.grad
        if found is None or self.copies[name] < self.shards.world or local(found) is not found:
            return None if found is None else local(found).clone()
        return self.shards.sum(found) / self.shards.world  # of no shard: nobody has averaged it

    def losses(self, batch: Any, pieces: Sequence[Interval], whole: bool) -> Iterator[Tensor]:
        """The mean loss of each piece: its value is that of all ranks, its graph this rank's part.

        Gradients are averaged over the ranks on their way to the shards, so a rank's part weighs as
        much as it has samples. A rank without samples computes one, for nothing.
        """
        if whole or not self._spread:
            for loss in super().losses(batch, pieces, whole):
                yield self._valued(loss, 1.0)
            return
        for start, stop in pieces:
            own = part(list(range(start, stop)), self.shards.rank, self.shards.world)
            first = own[0] if own else start
            weight = len(own) * self.shards.world / (stop - start)
            loss = self.loss(cut(batch, first, first + max(1, len(own))), self.seed + start)
            yield self._valued(loss, weight)

    def _valued(self, loss: Tensor, weight: float) -> Tensor:
        """All ranks see the same value, so that they agree on whether it is finite."""
        weighted = loss * weight
        value = self.shards.sum(narrow(weighted)) / self.shards.world
        return weighted + (value.to(loss) - weighted.detach())

    def try_spreading(self, batch: Any) -> None:
        """Whether the samples of a batch can be spread over the ranks: tried on a first batch."""
        if self.batch_norms or not fully_sharded(self.model, self.shards.world):
            return
        size = min(batch_size(batch), 2 * self.shards.world)
        together = self._flat(batch, size)
        self._spread = True
        difference = self.norm(self._flat(batch, size) - together)
        self._spread = bool(difference <= CLOSE * self.norm(together))

    def _flat(self, batch: Any, size: int) -> Tensor:
        names = self.differentiated
        with self.session():
            (loss,) = self.losses(cut(batch, 0, size), [(0, size)], False)
            found = self.gradient(loss, names, False, False)
        return flatten(filled(found, self.theta(names)))

    def by_scales(self, gradient: Tensor) -> Tensor:
        """``<W_k, gradient_k>`` over all shards."""
        return self.over_shards(super().by_scales(gradient), self.scaled)
