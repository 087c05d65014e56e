"""The global batch: the batches of all ranks, joined."""

from __future__ import annotations

import json

from torch import Tensor

from neuroinit.common.batches import END, Batch, map_tensors
from neuroinit.common.layout import SAMPLES_FIRST, BatchLayout
from neuroinit.common.tensors import fingerprint
from neuroinit.distributed.ranks import Ranks
from neuroinit.distributed.sent_batches import TensorForm, batches_of_all, content, tensor_form


def union(
    ranks: Ranks, batch: Batch, rounds: int, layout: BatchLayout = SAMPLES_FIRST
) -> tuple[Batch, int]:
    """The global batch: all different batches of the ranks, in their order.

    Ranks of one tensor-parallel group have the same batch; it counts once.

    Args:
        ranks: The processes.
        batch: This rank's batch, or ``END``.
        rounds: How often this rank's batches were repeated.
        layout: Where the samples of a batch are.

    Returns:
        The batch, or ``END`` if the batches of all ranks have ended; and the largest ``rounds``.

    Raises:
        ValueError: If the batches of the ranks cannot be joined.
    """
    if ranks.alone:
        return batch, rounds
    tensors: list[Tensor] = []
    rows = batch is END or layout.has_rows(batch)
    if batch is not END and rows:
        map_tensors(tensors.append, batch)
    note = {
        "end": batch is END,
        "rounds": rounds,
        "rows": rows,
        "digest": [fingerprint(t) for t in tensors],
        "forms": [tensor_form(t) for t in tensors],
    }
    notes = [json.loads(text) for text in ranks.texts(json.dumps(note))]
    rounds = max(n["rounds"] for n in notes)
    ended = [rank for rank, n in enumerate(notes) if n["end"]]
    if ended and len(ended) < ranks.world:
        raise RuntimeError(
            f"Rank {ended[0]} has no more batches, other ranks have. Give all ranks the same "
            "number: use a DistributedSampler, or pass a list or a DataLoader, which can be "
            "repeated."
        )
    if not all(n["rows"] for n in notes):
        return _joined_samples(ranks, batch, layout), rounds
    contents = [[n["digest"], n["forms"]] for n in notes]
    first = [contents.index(content) == rank for rank, content in enumerate(contents)]
    if sum(first) == 1:
        return batch, rounds
    forms = [n["forms"] for n in notes]
    return _joined(ranks, batch, tensors, forms, first, layout.dim), rounds


def _joined_samples(ranks: Ranks, batch: Batch, layout: BatchLayout) -> Batch:
    """Join all different batches, for batches with lists of samples or packed sequences."""
    if layout.custom:
        raise ValueError(
            "Batches with `cut=` cannot be joined with those of other ranks. Yield tensors, or "
            "lists of samples, or initialize in one process, save the result, and apply it on all "
            "ranks."
        )
    found = batches_of_all(ranks, batch)
    contents = [content(each) for each in found]
    different = [b for k, b in enumerate(found) if contents.index(contents[k]) == k]
    return different[0] if len(different) == 1 else layout.join(different)


def _joined(
    ranks: Ranks,
    batch: Batch,
    tensors: list[Tensor],
    forms: list[list[TensorForm]],
    first: list[bool],
    dim: int,
) -> Batch:
    """The batch with the samples of all ranks in every tensor; other values do not change.

    Args:
        ranks: The processes.
        batch: This rank's batch.
        tensors: The tensors in this batch.
        forms: For every rank, the dtypes and shapes of its tensors.
        first: For every rank, whether no rank before has the same batch; others add no rows.
        dim: The dimension of samples.
    """
    for rank, theirs in enumerate(forms):
        if [_without_rows(form, dim) for form in theirs] != [
            _without_rows(form, dim) for form in forms[0]
        ]:
            raise ValueError(
                f"The batches of rank {rank} and rank 0 cannot be joined: {theirs} and {forms[0]}. "
                "Tensors may differ only in the number of samples: pad to a common length."
            )
    wholes = []
    for k, tensor in enumerate(tensors):
        if tensor.dim():
            at = min(dim, tensor.dim() - 1)
            sizes = [theirs[k][1][at] * own for theirs, own in zip(forms, first, strict=True)]
            turned = tensor.movedim(at, 0)[: sizes[ranks.rank]].contiguous()
            tensor = ranks.concatenated(turned, sizes).movedim(0, at)
        wholes.append(tensor)
    found = iter(wholes)
    return map_tensors(lambda _: next(found), batch)


def _without_rows(form: TensorForm, dim: int) -> TensorForm:
    """A dtype and a shape without the dimension of samples."""
    name, shape = form
    at = min(dim, len(shape) - 1)
    return name, [size for k, size in enumerate(shape) if k != at]
