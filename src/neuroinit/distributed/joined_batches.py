"""The global batch: what all ranks bring, together."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor

from neuroinit.common.batches import END, Batch, map_tensors
from neuroinit.common.tensors import fingerprint
from neuroinit.distributed.ranks import Ranks


def union(ranks: Ranks, batch: Batch, rounds: int) -> tuple[Any, int]:
    """The global batch: all different batches of the ranks, in their order.

    Ranks of one tensor-parallel group have the same batch; it counts once.

    Args:
        ranks: The processes.
        batch: This rank's batch, or ``END``.
        rounds: How often this rank's batches were repeated.

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
            f"Rank {ended[0]} has no more batches, other ranks have. Give every rank as many: use "
            "a DistributedSampler, or pass a list or a DataLoader, which can be repeated."
        )
    contents = [[n["digest"], n["forms"]] for n in notes]
    first = [contents.index(content) == rank for rank, content in enumerate(contents)]
    if sum(first) == 1:
        return batch, rounds
    return _joined(ranks, batch, tensors, [n["forms"] for n in notes], first), rounds


def _joined(
    ranks: Ranks, batch: Batch, tensors: list[Tensor], forms: list[list[Any]], first: list[bool]
) -> Any:
    """Every tensor of the batch with the rows of all ranks; other values stay as they are.

    Args:
        ranks: The processes.
        batch: This rank's batch.
        tensors: The tensors in it.
        forms: Of every rank, the dtypes and shapes of its tensors.
        first: Whether a rank is the first one with its batch; other ranks add no rows.
    """
    for rank, theirs in enumerate(forms):
        if [[kind, *shape[1:]] for kind, *shape in theirs] != [
            [kind, *shape[1:]] for kind, *shape in forms[0]
        ]:
            raise ValueError(
                f"The batches of rank {rank} and rank 0 cannot be joined: {theirs} and {forms[0]}. "
                "Tensors may differ in their number of rows only: pad to a common length."
            )
    wholes = []
    for k, tensor in enumerate(tensors):
        if tensor.dim():
            sizes = [theirs[k][1] * own for theirs, own in zip(forms, first, strict=True)]
            tensor = ranks.concatenated(tensor[: sizes[ranks.rank]], sizes)
        wholes.append(tensor)
    found = iter(wholes)
    return map_tensors(lambda _: next(found), batch)
