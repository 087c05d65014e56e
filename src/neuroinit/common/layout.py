"""Where the samples are in a batch: counting samples, cutting and joining batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from neuroinit.common.batches import Batch, Data, as_tensor, rebuilt
from neuroinit.common.checks import check_callable, check_count
from neuroinit.common.sample_lists import (
    LISTS,
    READINGS,
    WHOLE,
    Reading,
    children,
    is_container,
    record_lists,
    with_values,
)
from neuroinit.common.targets import Targets, check_targets, entry, target_keys, with_entry

Cut = Callable[[Batch, int, int], Batch]


@dataclass(frozen=True)
class BatchLayout:
    """Where the samples are in a batch.

    A batch is a tensor, or nested tuples, lists, dicts and dataclasses of tensors, each with one
    entry per sample along a common dimension. Nested lists whose length is the number of samples
    are lists of samples, such as the images of a detector; so are nested tuples, if they hold texts
    or numbers, or if the tensors in them differ in their first dimension. A ``PackedSequence``, a
    nested tensor or any other object with ``__len__`` and slicing is cut by slicing.

    Args:
        dim: The dimension of samples in tensors; for tensors with fewer dimensions, the last.
        custom: ``custom(batch, start, stop)``: the samples from ``start`` to ``stop``, for batches
            of any other kind.
        targets: The key, index or field of the targets, or a tuple of several.
        known: Which lists of the first batch are lists of samples, see :meth:`settled`; empty
            before.
    """

    dim: int = 0
    custom: Cut | None = None
    targets: Targets | None = None
    known: tuple[Reading | None, ...] = ()

    def settled(self, batch: Batch) -> BatchLayout:
        """A copy that interprets all further batches as this batch.

        The interpretation of a part alone may be wrong: an image of three channels with three
        boxes looks like three samples.
        """
        if self.custom or self.known:
            return self
        if self.targets is not None:
            target_keys(batch, self.targets)  # raises if there are none
        return dataclasses.replace(self, known=(self._interpret(batch)[1],))

    def size(self, batch: Batch) -> int:
        """The number of samples.

        Raises:
            ValueError: If the tensors of a batch have different numbers of samples.
        """
        size = self._length(batch) if self.custom else self._interpret(batch)[0]
        if size == 0:
            raise ValueError("A batch has no samples.")
        return size

    def cut(self, batch: Batch, start: int, stop: int) -> Batch:
        """The samples ``start <= i < stop``."""
        if self.custom:
            return self.custom(batch, start, stop)
        if isinstance(batch, Tensor) and batch.ndim:
            return self._cut(batch, start, stop, None, 0)
        return self._cut(batch, start, stop, self._interpret(batch)[1], 0)

    def join(self, batches: Sequence[Batch]) -> Batch:
        """All samples of several batches in one.

        Raises:
            ValueError: If the batches do not fit together, or are cut by a custom function.
        """
        if self.custom:
            raise ValueError("Batches with `cut=` cannot be joined.")
        return self._join(list(batches), self._interpret(batches[0])[1], 0)

    def has_rows(self, batch: Batch) -> bool:
        """Whether all samples are entries of tensors along ``dim``, and not of lists."""
        return not self.custom and self._interpret(batch)[1] is None and _has_rows(batch)

    def with_other_targets(self, batch: Batch, shift: int) -> Batch:
        """The same inputs; sample ``i`` has the targets of sample ``i + shift``, cyclically.

        Raises:
            ValueError: If it is not known which part of the batch the targets are.
        """
        if self.custom:
            raise ValueError("The targets of batches with `cut=` cannot be permuted.")
        size, reading = self._interpret(batch)
        for key in target_keys(batch, self.targets):
            own = entry(batch, key)
            parts = [
                self._cut(own, start, stop, reading, 1)
                for start, stop in ((shift, size), (0, shift))
            ]
            batch = with_entry(batch, key, self._join(parts, reading, 1))
        return batch

    # -- interpretation ----------------------------------------------------------------------------

    def _interpret(self, batch: Batch) -> tuple[int, Reading | None]:
        """The number of samples, and which lists are lists of samples."""
        for reading in self.known:
            sizes = set(self._sizes(batch, reading, 0))
            if len(sizes) == 1:
                return sizes.pop(), reading
        size, reading = self._interpret_lists(batch)
        return size, with_values(reading, batch, size)

    def _interpret_lists(self, batch: Batch) -> tuple[int, Reading | None]:
        found = [set(self._sizes(batch, reading, 0)) for reading in READINGS]
        plain, nested, whole, _ = found
        records = record_lists(batch)
        if "nested" in records and len(nested) == 1:
            return nested.pop(), LISTS
        if "scalars" in records and len(whole) == 1:
            return whole.pop(), WHOLE
        other = whole if "whole" in records else nested
        if len(plain) == 1 and len(other) == 1 and plain != other:
            raise ValueError(
                f"A list in a batch may hold {min(other)} samples, or tensors of {min(plain)} "
                "samples each. Pass `cut=lambda batch, start, stop: ...`, which returns the "
                "samples from `start` to `stop`."
            )
        for reading, sizes in zip(READINGS, found, strict=True):
            if len(sizes) == 1:
                return sizes.pop(), reading
        if not plain:
            raise ValueError(
                f"A batch of type `{type(batch).__name__}` holds no tensor with samples along "
                f"dimension {self.dim}. Yield tensors, or tuples, lists and dicts of tensors, or "
                "pass `cut=lambda batch, start, stop: ...`."
            )
        raise ValueError(
            f"The tensors of a batch disagree about dimension {self.dim}: found sizes "
            f"{sorted(plain)}. Every tensor needs one entry per sample; close over the others in "
            "`compute_loss`, or pass `batch_dim=` or `cut=lambda batch, start, stop: ...`."
        )

    def _sizes(self, part: Data, reading: Reading | None, depth: int) -> Iterator[int]:
        if isinstance(part, PackedSequence):
            yield int(part.batch_sizes[0])
        elif isinstance(part, Tensor) or hasattr(part, "__array__"):
            if part.ndim:
                yield part.size(0) if _is_nested(part) else part.shape[min(self.dim, part.ndim - 1)]
        elif _are_samples(part, reading, depth) or _is_sliceable(part):
            yield len(part)
        else:
            for child in children(part):
                yield from self._sizes(child, reading, depth + 1)

    def _length(self, batch: Batch) -> int:
        """Number of samples for a custom cut: of tensors, or ``len`` of batch or first entry."""
        found = set(self._sizes(batch, LISTS, 0))
        if len(found) == 1:
            return found.pop()
        whole = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if hasattr(whole, "__len__") and not isinstance(whole, Mapping):
            return len(whole)
        raise ValueError(
            f"With `cut=`, a batch needs a length: `len(batch)`, or `len(batch[0])` for a tuple. "
            f"Found a `{type(batch).__name__}` without one."
        )

    # -- cutting and joining -----------------------------------------------------------------------

    def _cut(self, part: Data, start: int, stop: int, reading: Reading | None, depth: int) -> Data:
        if isinstance(part, PackedSequence):
            return pack_sequence(unpack_sequence(part)[start:stop], enforce_sorted=False)
        if isinstance(part, Tensor) or hasattr(part, "__array__"):
            part = as_tensor(part)
            if _is_nested(part):
                return torch.nested.as_nested_tensor(part.unbind()[start:stop], layout=part.layout)
            dim = min(self.dim, part.ndim - 1)
            return part.narrow(dim, start, stop - start) if part.ndim else part
        if _are_samples(part, reading, depth) or _is_sliceable(part):
            return part[start:stop]
        return rebuilt(part, lambda c: self._cut(c, start, stop, reading, depth + 1))

    def _join(self, parts: list[Data], reading: Reading | None, depth: int) -> Data:
        first = parts[0]
        if isinstance(first, PackedSequence):
            every = [sequence for part in parts for sequence in unpack_sequence(part)]
            return pack_sequence(every, enforce_sorted=False)
        if hasattr(first, "__array__") or isinstance(first, Tensor):
            return self._concatenated([as_tensor(part) for part in parts])
        if _are_samples(first, reading, depth):
            return type(first)(sample for part in parts for sample in part)
        if _is_sliceable(first):
            raise ValueError(f"Batches of type `{type(first).__name__}` cannot be joined.")
        columns = list(zip(*(list(children(part)) for part in parts), strict=True))
        joined = iter([self._join(list(c), reading, depth + 1) for c in columns])
        return rebuilt(first, lambda _: next(joined))

    def _concatenated(self, tensors: list[Tensor]) -> Tensor:
        if tensors[0].ndim == 0:
            return tensors[0]
        if any(_is_nested(t) for t in tensors):
            every = [sample for t in tensors for sample in t.unbind()]
            return torch.nested.as_nested_tensor(every, layout=tensors[0].layout)
        try:
            return torch.cat(tensors, min(self.dim, tensors[0].ndim - 1))
        except RuntimeError as error:
            shapes = sorted({tuple(t.shape) for t in tensors})
            raise ValueError(f"Batches of shapes {shapes} cannot be joined.") from error


SAMPLES_FIRST = BatchLayout()


def batch_layout(cut: Cut | None, batch_dim: int, targets: Targets | None = None) -> BatchLayout:
    """The layout of a user's batches, from checked arguments."""
    if cut is not None:
        check_callable("cut", cut)
    check_count("batch_dim", batch_dim, 0)
    check_targets(targets, cut is not None)
    return BatchLayout(batch_dim, cut, targets)


def _is_nested(part: object) -> bool:
    return isinstance(part, Tensor) and part.is_nested


def _has_rows(part: object) -> bool:
    if isinstance(part, PackedSequence) or _is_sliceable(part):
        return isinstance(part, Tensor) and not part.is_nested
    return all(map(_has_rows, children(part)))


def _are_samples(part: object, reading: Reading | None, depth: int) -> bool:
    return reading is not None and reading.takes(part, depth)


def _is_sliceable(part: object) -> bool:
    """Whether this is an object with samples that can be sliced, and not a standard container."""
    if is_container(part) or isinstance(part, (str, bytes, type)):
        return False
    return hasattr(part, "__len__") and hasattr(part, "__getitem__")
