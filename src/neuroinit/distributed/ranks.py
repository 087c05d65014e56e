"""The processes that share the work.

Every collective begins with a header of three numbers, which tell whether a rank has failed and
whether all ranks call the same collective. A rank with an exception takes part in the next
collective with its error in place of its data. So all ranks raise the same error, and no rank waits
for a rank that has failed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from neuroinit.common.errors import LostRankError
from neuroinit.common.process.signals import deferred, deliver
from neuroinit.distributed.collectives import (
    gathered,
    gathered_texts,
    maximum,
    new_groups,
    summed,
)
from neuroinit.distributed.passed_errors import described, is_common, mark_common, rebuilt

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Ranks:
    """The processes that share the work. With one process every method returns its argument.

    Args:
        rank: Index of this process.
        world: Number of processes.
    """

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world
        self._groups: dict[tuple[tuple[int, ...], ...], ProcessGroup] = {}

    @property
    def alone(self) -> bool:
        """Whether there is only this process."""
        return self.world == 1

    # -- data --------------------------------------------------------------------------------------

    def sum(self, tensor: Tensor, blocks: Sequence[Sequence[int]] = ()) -> Tensor:
        """The sum over all ranks, or over this rank's block; bit-identical on each rank."""
        if self.alone:
            return tensor
        with deferred():
            self.meet(f"sum {tuple(tensor.shape)} {tensor.dtype}")
            return summed(tensor, self._group(blocks) if blocks else None)

    def texts(self, text: str) -> list[str]:
        """The text of every rank, in the order of the ranks."""
        if self.alone:
            return [text]
        with deferred():
            self.meet("texts")
            return gathered_texts(text, self.world)

    def first(self, text: str) -> str:
        """The text of rank 0."""
        return self.texts(text if self.rank == 0 else "")[0]

    def least(self, value: int) -> int:
        """The smallest value of all ranks."""
        return min(int(text) for text in self.texts(str(value)))

    def concatenated(self, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        """The tensors of all ranks, one after the other; ``sizes`` are their lengths."""
        with deferred():
            self.meet(f"concatenated {tuple(tensor.shape[1:])} {tensor.dtype}")
            return torch.cat(gathered(tensor, sizes))

    def _group(self, blocks: Sequence[Sequence[int]]) -> ProcessGroup:
        """The process group of this rank's block; the groups of all blocks are made together."""
        key = tuple(tuple(block) for block in blocks)
        if key not in self._groups:
            made = new_groups(key)
            self._groups[key] = made[next(i for i, b in enumerate(key) if self.rank in b)]
        return self._groups[key]

    def close(self) -> None:
        """Destroy the process groups of blocks."""
        for group in self._groups.values():
            dist.destroy_process_group(group)
        self._groups = {}

    # -- agreement ---------------------------------------------------------------------------------

    def check_same(self, what: str, text: str, fix: str) -> None:
        """Raise on all ranks if their texts differ."""
        found = self.texts(text)
        other = [rank for rank, theirs in enumerate(found) if theirs != found[0]]
        if other:
            raise ValueError(f"Rank {other[0]} has other {what} than rank 0. {fix}")

    @contextmanager
    def together(self) -> Iterator[None]:
        """A context in which an error on one rank is raised on all ranks."""
        try:
            yield
        except BaseException as error:
            if self.alone or isinstance(error, LostRankError) or is_common(error):
                raise
            with deferred():
                self._raise(error)

    def meet(self, purpose: str) -> None:
        """Exchange the header.

        Raises:
            BaseException: The error of a rank that has failed.
            LostRankError: If the ranks pass different purposes.
        """
        if self.alone:
            return
        deliver()  # a delayed interrupt is an error of this rank
        tag = zlib.crc32(purpose.encode())
        failing, most, least = maximum([0, tag, -tag])
        if failing:
            self._raise(None, self.world - failing)
        if most != -least:
            raise LostRankError(
                f"The ranks do different things: rank {self.rank} is at `{purpose}`, another rank "
                "is not. They need the same model, method and settings, and the same number of "
                "calls of `optimize`."
            )

    def end(self) -> None:
        """The last collective of a call: a delayed interrupt is raised on all ranks.

        A later interrupt is raised at the end of the call on its rank only.
        """
        deliver()
        self.meet("end")

    def _raise(self, own: BaseException | None, failing: int | None = None) -> None:
        """Exchange the errors of all failed ranks; all raise the error of the lowest such rank.

        Args:
            own: The error of this rank, if it has failed.
            failing: The lowest rank that has failed, if the header was exchanged already.
        """
        if failing is None:
            failing = self.world - maximum([self.world - self.rank, 0, 0])[0]
        mine = {} if own is None else described(own)
        theirs = json.loads(gathered_texts(json.dumps(mine), self.world)[failing])
        chosen = own if own is not None and theirs == mine else rebuilt(**theirs)
        if failing != self.rank:
            chosen.add_note(f"This was raised on rank {failing}.")
        mark_common(chosen)
        if chosen is own:
            raise chosen
        raise chosen from own


ALONE = Ranks()


_by_itself: ContextVar[bool] = ContextVar("by_itself", default=False)


@contextmanager
def alone() -> Iterator[None]:
    """A context in which this process computes alone and ignores the process group.

    Example:
        >>> with alone():
        ...     ranks().world
        1
    """
    token = _by_itself.set(True)
    try:
        yield
    finally:
        _by_itself.reset(token)


def ranks() -> Ranks:
    """The processes of the default process group, or this one if there is no group."""
    if (
        _by_itself.get()
        or not dist.is_available()
        or not dist.is_initialized()
        or dist.get_world_size() == 1
    ):
        return Ranks()
    return Ranks(dist.get_rank(), dist.get_world_size())
