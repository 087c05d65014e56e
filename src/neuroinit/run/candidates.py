"""The candidates that short trainings compare with the model as it is, see ``verify.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neuroinit.methods.classic.layers import EMBEDDINGS
from neuroinit.methods.small_branches import factors_to
from neuroinit.model.problem import Problem
from neuroinit.run.results.result import Result

MOST = 4  # trainings besides that of the model as it is
WHOLE, HALF, LAYERS = "whole", "half", "layer by layer"
BRANCHES, SMALLER_BRANCHES = "to residual branches", "to residual branches, with squared factors"
BOTH = "layer by layer, with small residual branches"
GPT2 = "to all weights and residual branches, as in GPT-2"
GPT2_STD = 0.02


@dataclass(frozen=True)
class Candidate:
    """A candidate: fresh values and scales.

    Args:
        result: The fresh values are those of this result.
        scales: Parameter name -> scale; those of the result, or others.
    """

    result: Result
    scales: dict[str, float]


def candidates_of(results: Mapping[str, Result]) -> dict[str, Candidate]:
    """The candidates by name; at most four."""
    found = {name: result for name, result in results.items() if _changes(result)}
    candidates = {n: Candidate(found[n], found[n].scales) for n in (WHOLE, BRANCHES) if n in found}
    if BRANCHES in found:
        small = found[BRANCHES]
        candidates[SMALLER_BRANCHES] = Candidate(small, _power(small.scales, 2.0))
    if LAYERS in found:
        layers, small_branches = found[LAYERS], found.get(BRANCHES)
        if small_branches is None:
            candidates[LAYERS] = Candidate(layers, layers.scales)
        else:
            both = {n: s * small_branches.scales.get(n, 1.0) for n, s in layers.scales.items()}
            candidates[BOTH] = Candidate(layers, both)
    if list(candidates) == [WHOLE]:
        candidates[HALF] = Candidate(found[WHOLE], _power(found[WHOLE].scales, 0.5))
    return candidates


def with_gpt2(
    candidates: dict[str, Candidate], problem: Problem, most: int = MOST
) -> dict[str, Candidate]:
    """The candidates with GPT-2's scales, if there are residual branches and embeddings.

    They take the place of the smaller branches if there would be more than ``most`` candidates.
    """
    small = candidates.get(BRANCHES)
    if small is None or not any(isinstance(m, EMBEDDINGS) for m in problem.model.modules()):
        return candidates
    factors = factors_to(GPT2_STD, problem)
    scales = {name: scale * factors.get(name, 1.0) for name, scale in small.scales.items()}
    found = {**candidates, GPT2: Candidate(small.result, scales)}
    return (
        found if len(found) <= most else {n: o for n, o in found.items() if n != SMALLER_BRANCHES}
    )


def _power(scales: Mapping[str, float], exponent: float) -> dict[str, float]:
    return {name: scale**exponent for name, scale in scales.items()}


def _changes(result: Result) -> bool:
    return bool(result.drawn) or any(scale != 1 for scale in result.scales.values())
