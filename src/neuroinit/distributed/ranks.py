"""Several processes that share the work: the only file that knows torch.distributed.

Every meeting of the ranks begins with a header of three numbers: is anybody failing, and does
everybody want the same thing? A rank that raises goes to the next meeting with its error instead of
its numbers, so all ranks raise the same error, and nobody waits for somebody who will not come.
"""

from __future__ import annotations

import builtins
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from neuroinit.common import errors
from neuroinit.common.batches import END, Batch, map_tensors
from neuroinit.common.errors import LostRankError
from neuroinit.common.tensors import fingerprint


class Ranks:
    """The processes that share the work; alone, every method returns what it is given.

    Args:
        rank: This process.
        world: How many there are.
    """

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world
        self._groups: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._told: list[BaseException] = []

    @property
    def alone(self) -> bool:
        """Whether there is nobody to share with."""
        return self.world == 1

    # -- numbers -----------------------------------------------------------------------------------

    def sum(self, tensor: Tensor, blocks: Sequence[Sequence[int]] = ()) -> Tensor:
        """The sum over all ranks, or over the ranks of this one's block; the same bits on each."""
        if self.alone:
            return tensor
        self._meet(f"sum {tuple(tensor.shape)} {tensor.dtype}")
        total = tensor.detach().to(_device(tensor), copy=True).contiguous()
        if blocks:
            group = self._group(blocks)
            with _contact():
                dist.all_reduce(total, group=group)
        else:
            with _contact():
                dist.all_reduce(total)
        return total.to(tensor.device)

    def texts(self, text: str) -> list[str]:
        """Every rank's text, in the order of the ranks."""
        if self.alone:
            return [text]
        self._meet("texts")
        return _texts(text, self.world)

    def first(self, text: str) -> str:
        """The text of rank 0."""
        return self.texts(text if self.rank == 0 else "")[0]

    def concatenated(self, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        """The tensors of all ranks, one after the other; ``sizes`` are their lengths."""
        self._meet(f"concatenated {tuple(tensor.shape[1:])} {tensor.dtype}")
        return torch.cat(_gathered(tensor, sizes)).to(tensor.device)

    def _group(self, blocks: Sequence[Sequence[int]]) -> Any:
        """The process group of this rank's block; all blocks are made at once, by all ranks."""
        key = tuple(tuple(block) for block in blocks)
        if key not in self._groups:
            with _contact():
                made = [dist.new_group(list(block)) for block in key]
            self._groups[key] = made[next(i for i, b in enumerate(key) if self.rank in b)]
        return self._groups[key]

    def close(self) -> None:
        """Give back the process groups of blocks."""
        for group in self._groups.values():
            dist.destroy_process_group(group)
        self._groups = {}

    # -- agreement ---------------------------------------------------------------------------------

    def check_same(self, what: str, text: str, fix: str) -> None:
        """Raise on all ranks if they bring different texts."""
        found = self.texts(text)
        other = [rank for rank, theirs in enumerate(found) if theirs != found[0]]
        if other:
            raise ValueError(f"Rank {other[0]} has other {what} than rank 0. {fix}")

    @contextmanager
    def together(self) -> Iterator[None]:
        """What raises inside on one rank raises on all of them."""
        try:
            yield
        except BaseException as error:
            if self.alone or isinstance(error, LostRankError) or self._knows(error):
                raise
            self._raise(error)

    def _knows(self, error: BaseException) -> bool:
        """Whether all ranks have this error already, or the one that it was raised from."""
        seen: BaseException | None = error
        while seen is not None:
            if any(seen is told for told in self._told):
                return True
            seen = seen.__cause__
        return False

    def _meet(self, purpose: str) -> None:
        """The header; raises if a rank comes with an error, or with another purpose."""
        tag = zlib.crc32(purpose.encode())
        failing, most, least = _header([0, tag, -tag])
        if failing:
            self._raise(None, self.world - failing)
        if most != -least:
            raise LostRankError(
                f"The ranks have come apart: rank {self.rank} is at `{purpose}`, another is "
                "elsewhere. They need the same model, method and settings, and the same number of "
                "calls of `optimize`."
            )

    def _raise(self, own: BaseException | None, failing: int | None = None) -> None:
        """All ranks learn of the errors there are, and raise that of the lowest rank."""
        if failing is None:
            failing = self.world - _header([self.world - self.rank, 0, 0])[0]
        mine = {} if own is None else _described(own)
        theirs = json.loads(_texts(json.dumps(mine), self.world)[failing])
        chosen = own if own is not None and theirs == mine else _rebuilt(**theirs)
        if failing != self.rank:
            chosen.add_note(f"This was raised on rank {failing}.")
        self._told.append(chosen)
        if chosen is own:
            raise chosen
        raise chosen from own


ALONE = Ranks()


_by_itself: ContextVar[bool] = ContextVar("by_itself", default=False)


@contextmanager
def alone() -> Iterator[None]:
    """What this process computes inside, it computes by itself, whatever the process group.

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
    """The processes of the default process group; alone without one."""
    if (
        _by_itself.get()
        or not dist.is_available()
        or not dist.is_initialized()
        or dist.get_world_size() == 1
    ):
        return Ranks()
    return Ranks(dist.get_rank(), dist.get_world_size())


def union(ranks: Ranks, batch: Batch, rounds: int) -> tuple[Any, int]:
    """The global batch: the common one if all ranks bring the same, else all of them in order.

    Args:
        ranks: Who brings batches.
        batch: This rank's, or ``END``.
        rounds: How often this rank's batches were gone through.

    Returns:
        The batch, or ``END`` if all ranks have come to the end; and the largest ``rounds``.
    """
    if ranks.alone:
        return batch, rounds
    tensors: list[Tensor] = []
    if batch is not END:
        map_tensors(tensors.append, batch)
    note = {
        "end": batch is END,
        "rounds": rounds,
        "digest": [fingerprint(t) for t in tensors],
        "forms": [[str(t.dtype), *t.shape] for t in tensors],
    }
    notes = [json.loads(text) for text in ranks.texts(json.dumps(note))]
    rounds = max(n["rounds"] for n in notes)
    ended = [rank for rank, n in enumerate(notes) if n["end"]]
    if ended and len(ended) < ranks.world:
        raise RuntimeError(
            f"Rank {ended[0]} has no more batches, other ranks have. Give every rank as many: a "
            "DistributedSampler does, or pass a list or a DataLoader, which can start again."
        )
    if all((n["digest"], n["forms"]) == (notes[0]["digest"], notes[0]["forms"]) for n in notes):
        return batch, rounds
    return _joined(ranks, batch, tensors, [n["forms"] for n in notes]), rounds


def _joined(ranks: Ranks, batch: Batch, tensors: list[Tensor], forms: list[list[Any]]) -> Any:
    """Every tensor of the batch with the rows of all ranks; numbers stay as they are."""
    for rank, theirs in enumerate(forms):
        if [[kind, *shape[1:]] for kind, *shape in theirs] != [
            [kind, *shape[1:]] for kind, *shape in forms[0]
        ]:
            raise ValueError(
                f"The batches of rank {rank} and rank 0 cannot be joined: {theirs} and {forms[0]}. "
                "Tensors may differ in their number of rows only: pad to a common length."
            )
    wholes = iter(
        [
            ranks.concatenated(t, [theirs[k][1] for theirs in forms]) if t.dim() else t
            for k, t in enumerate(tensors)
        ]
    )
    return map_tensors(lambda _: next(wholes), batch)


# -- sharded parameters ----------------------------------------------------------------------------


# -- torch.distributed -----------------------------------------------------------------------------


@contextmanager
def _contact() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LostRankError(
            "Lost contact with another rank: it was killed, or ended without a word. See its own "
            f"output. torch says: {error}"
        ) from error


def _device(tensor: Tensor | None = None) -> torch.device:
    """Where the backend wants its tensors."""
    if "nccl" not in dist.get_backend() or "gloo" in dist.get_backend():
        return torch.device("cpu") if tensor is None else tensor.device
    if tensor is not None and tensor.is_cuda:
        return tensor.device
    return torch.device("cuda", torch.cuda.current_device())


def _header(values: list[int]) -> list[int]:
    header = torch.tensor(values, dtype=torch.int64, device=_device())
    with _contact():
        dist.all_reduce(header, op=dist.ReduceOp.MAX)
    return [int(value) for value in header.tolist()]


def _texts(text: str, world: int) -> list[str]:
    own = torch.tensor(bytearray(text.encode()), dtype=torch.uint8, device=_device())
    ones = [1] * world
    sizes = torch.cat(_gathered(torch.tensor([len(own)], device=own.device), ones)).tolist()
    return [bytes(part.tolist()).decode() for part in _gathered(own, sizes)]


def _gathered(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Every rank's tensor; they differ in length, which backends don't take, so they are padded."""
    longest = max(sizes)
    own = tensor.detach().to(_device(tensor))
    padded = own.new_zeros(longest, *own.shape[1:])
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in sizes]
    with _contact():
        dist.all_gather(parts, padded)
    return [part[:size] for part, size in zip(parts, sizes, strict=True)]


def _described(error: BaseException) -> dict[str, str]:
    plain = len(error.args) == 1 and isinstance(error.args[0], str)  # a KeyError quotes its text
    return {"kind": type(error).__name__, "text": error.args[0] if plain else str(error)}


def _rebuilt(kind: str, text: str) -> BaseException:
    """An error of the same type, if it is one of Python's or ours; else a RuntimeError."""
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    plain = isinstance(found, type) and issubclass(found, (Exception, KeyboardInterrupt))
    try:
        error = found(text) if plain and found is not None else None
    except TypeError:  # UnicodeDecodeError and its like take more than a text
        error = None
    return error if isinstance(error, BaseException) else RuntimeError(f"{kind}: {text}")
