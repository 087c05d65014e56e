"""Checks that all ranks hold the same parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor

from neuroinit.common.tensors import fingerprint
from neuroinit.distributed.ranks import Ranks

SAME_START = (
    "Use the same seed on every rank before the model is made, or wrap it in "
    "DistributedDataParallel, which sends the parameters of rank 0 to all."
)


def digests(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """Name -> shape and fingerprint of a tensor."""
    return {n: [*t.shape, fingerprint(t)] for n, t in tensors.items()}


def check_same_tensors(
    ranks: Ranks, tensors: Mapping[str, Tensor], what: str = "parameters", fix: str = SAME_START
) -> None:
    """Raise on all ranks if a tensor is not the same, bit for bit, on all ranks."""
    if not ranks.alone:
        ranks.check_same(what, json.dumps(digests(tensors)), fix)
