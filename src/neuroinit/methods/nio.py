"""NIO: maximize GradCosine and gradient norm under a bound on the largest norm.

Yang et al., *Towards Theoretically Inspired Neural Initialization Optimization*, NeurIPS 2022.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuroinit.checks import check_callable, check_choice, check_count, check_number
from neuroinit.diagnose import check_split, make_plan
from neuroinit.gradients import derivative
from neuroinit.measures import Moments
from neuroinit.methods.base import Method, Step
from neuroinit.methods.presets import PRESETS
from neuroinit.problem import Problem, Selection
from neuroinit.scales import Plain, TwoMomentAdam
from neuroinit.split import Plan

# gamma="auto" is this multiple of the loss at zero output; see docs/defaults.md.
GAMMA_PER_LOSS = 1.0

Measure = Callable[[Moments], Tensor]


def cosine_and_norm(moments: Moments, gamma: float) -> Tensor:
    """``GC + GN``, the objective of Eq. 9."""
    return moments.cosine + moments.norm


def distinct_cosine_and_sum(moments: Moments, gamma: float) -> Tensor:
    """Cosine of the pairs ``i != j`` plus the *sum* of the norms: the authors' released code."""
    return moments.distinct_cosine + moments.norms.sum()


def largest_norm(moments: Moments) -> Tensor:
    """What the paper bounds (Alg. 3, line 5)."""
    return moments.norms.max()


def mean_norm(moments: Moments) -> Tensor:
    """What the authors' released code bounds."""
    return moments.norm


@dataclass(frozen=True, kw_only=True)
class NIO(Method):
    """Neural Initialization Optimization (Alg. 3), with our defaults.

    Maximizes ``objective`` by one scale a tensor; while ``bounded`` exceeds ``gamma``, descends
    the mean gradient norm instead. :meth:`paper` and :meth:`reference` are the paper to the letter
    and the authors' released code.

    Args:
        gamma: Upper bound of the gradient norm; ``"auto"`` takes it from the loss of a network
            that says nothing.
        sub_batches: Number of sub-batches ``D``, or ``"samples"``.
        overlap: Overlap ratio ``r``.
        split: How a batch is cut: ``"cover"``, ``"paper"`` (Eq. 8) or ``"reference"``.
        batch_stats: BatchNorm's statistics are those of the ``"sub-batch"`` or of the ``"batch"``.
        objective: ``objective(moments, gamma)``, what is maximized.
        bounded: ``bounded(moments)``, what ``gamma`` bounds.
        gram: ``objective`` reads ``moments.gram``.
        gradients_of: Module types whose gradients are looked at; ``None`` for all parameters.
        min_bias_scale: Lower clamp for names with ``bias``; ``None`` for ``min_scale``.

    Example:
        >>> NIO(steps=40, gamma=2.0).sub_batches
        8
    """

    gamma: float | str = "auto"
    sub_batches: int | str = 8
    overlap: float = 0.0
    split: str = "cover"
    batch_stats: str = "sub-batch"
    objective: Callable[[Moments, float], Tensor] = cosine_and_norm
    bounded: Measure = largest_norm
    gram: bool = False
    gradients_of: tuple[type[nn.Module], ...] | None = None
    min_bias_scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gamma, str):
            check_choice("gamma", self.gamma, ("auto",))
        else:
            check_number("gamma", self.gamma, 0.0, also='or "auto"')
        check_split(self.sub_batches, self.overlap, self.split, self.batch_stats)
        if self.sub_batches != "samples":
            check_count("sub_batches", self.sub_batches, 2, 'or "samples"')
        types = self.gradients_of or ()
        if not isinstance(types, tuple) or not all(isinstance(t, type) for t in types):
            raise TypeError(
                "Parameter `gradients_of` should be a tuple of module types or None. "
                f"Found `gradients_of = {types!r}`."
            )
        check_callable("objective", self.objective)
        check_callable("bounded", self.bounded)
        if self.min_bias_scale is not None:
            check_number("min_bias_scale", self.min_bias_scale, 0.0, 1.0, closed=True)

    @classmethod
    def paper(cls, preset: str | None = None, **changes: Any) -> NIO:
        """The paper to the letter: Alg. 3, Eq. 8, plain steps.

        Args:
            preset: One of the paper's settings (Appendix B), by name: see :data:`PRESETS`.
            **changes: Fields that differ from it.

        Example:
            >>> NIO.paper("cifar10-resnet110", steps=10).lr
            0.1
        """
        return cls(**{**_PAPER, **_preset(preset), **changes})

    @classmethod
    def reference(cls, preset: str | None = None, **changes: Any) -> NIO:
        """The authors' released code, with the settings of its ResNet-50 run.

        Args:
            preset: One of the paper's settings (Appendix B), by name: see :data:`PRESETS`.
            **changes: Fields that differ from it.

        Example:
            >>> NIO.reference(gamma=3.0).batch_stats
            'batch'
        """
        return cls(**{**_REFERENCE, **_preset(preset), **changes})

    def resolve(self, problem: Problem, batch: Any) -> NIO:
        """``gamma="auto"`` becomes a multiple of the loss at zero output."""
        if self.gamma != "auto":
            return self
        loss = problem.zero_loss(batch)
        if not 0 < loss < float("inf"):
            raise ValueError(
                f"`gamma = 'auto'` takes the bound from the loss at zero output, which is {loss}. "
                "Pass a number, for example `gamma=1.0`."
            )
        return dataclasses.replace(self, gamma=GAMMA_PER_LOSS * loss)

    def fits(self, size: int) -> bool:
        """A batch needs a sample for every sub-batch."""
        return self.sub_batches == "samples" or size >= int(self.sub_batches)

    def plan(self, problem: Problem, batch: Any, microbatch: int | None) -> Plan:
        """The sub-batches, or what they are made of."""
        return make_plan(
            problem, batch, self.sub_batches, self.overlap, self.split, self.batch_stats, microbatch
        )

    def step(self, problem: Problem, batch: Any, engine: str, microbatch: int | None) -> Step:
        """One pass of Alg. 3's loop: the ascent of the objective, or the descent of the norm."""
        gamma = float(self.gamma)

        def descended(moments: Moments) -> Tensor:
            if self.bounded(moments) > gamma:
                return moments.norm
            return -self.objective(moments, gamma)

        plan = self.plan(problem, batch, microbatch)
        found = derivative(problem, batch, plan, descended, engine, self.gram)
        norms = found.moments.norms
        return Step(
            gradient=found.gradient,
            constrained=bool(self.bounded(found.moments) > gamma),
            loss=found.loss,
            cosine=float(found.moments.cosine),
            norm=float(norms.mean()),
            norm_max=float(norms.max()),
            norm_min=float(norms.min()),
        )

    def selection(self) -> Selection:
        """Which parameters get a scale, and whose gradients are looked at."""
        return dataclasses.replace(super().selection(), gradients_of=self.gradients_of)

    def lowest(self, names: list[str]) -> Tensor:
        """The lower clamp of every scale; a name with ``weight`` and ``bias`` counts as weight."""
        lowest = super().lowest(names)
        if self.min_bias_scale is not None:
            bias = ["bias" in n and "weight" not in n for n in names]
            lowest[torch.tensor(bias, device="cpu")] = self.min_bias_scale
        return lowest


_PAPER: dict[str, Any] = {
    "update": Plain(),
    "objective": cosine_and_norm,
    "bounded": largest_norm,
    "split": "paper",
    "tolerance": 0.0,
    **PRESETS["cifar10-resnet110"],
}

_REFERENCE: dict[str, Any] = {
    "update": TwoMomentAdam(),
    "objective": distinct_cosine_and_sum,
    "bounded": mean_norm,
    "split": "reference",
    "batch_stats": "batch",
    "gradients_of": (nn.Conv2d, nn.Linear, nn.LayerNorm),
    "include": ("*weight*", "*bias*"),
    "min_bias_scale": 0.0,
    "tolerance": 0.0,
    **PRESETS["imagenet-resnet50"],
}


def _preset(name: str | None) -> dict[str, Any]:
    if name is not None:
        check_choice("preset", name, tuple(PRESETS))
    return dict(PRESETS[name]) if name is not None else {}
