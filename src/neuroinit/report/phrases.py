"""Parts of sentences: counts and lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

SAME = 0.01  # a scale this near to 1, in its logarithm, counts as unchanged


def moved(scales: Sequence[float]) -> tuple[int, int]:
    """How many scales are below 1, and how many above."""
    logs = [math.log(scale) if scale > 0 else -math.inf for scale in scales]
    return sum(x < -SAME for x in logs), sum(x > SAME for x in logs)


def tensors(count: int, kind: str = "") -> str:
    """``3 weight tensors``."""
    words = f"{kind} tensor" if kind else "tensor"
    return f"{count} {words}{'' if count == 1 else 's'}"


def names_of(names: Sequence[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return joined([*names[:most], *more])


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence with commas and an `and`."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
