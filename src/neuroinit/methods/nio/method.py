"""NIO: raise GradCosine under a bound on the gradient norm, by one scale per tensor.

Yang et al., *Towards Theoretically Inspired Neural Initialization Optimization*, NeurIPS 2022.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Unpack

from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.checks import (
    check_callable,
    check_choice,
    check_count,
    check_instance,
    check_number,
)
from neuroinit.common.sealed_json import JSON
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan, check_split, make_plan
from neuroinit.gradients.sub_batches import USUAL
from neuroinit.methods.base import Method, Step
from neuroinit.methods.nio.common_factor import CommonFactor
from neuroinit.methods.nio.fields import NIOFields
from neuroinit.methods.nio.held_norm import HeldNorm
from neuroinit.methods.nio.presets import PAPER, REFERENCE, preset_fields
from neuroinit.methods.nio.rules import Rule
from neuroinit.methods.nio.unit_loss import unit_loss
from neuroinit.methods.updates import Position, State, lower_bounds
from neuroinit.model.arguments.optimizers import FAMILIES
from neuroinit.model.parameters.selection import ParameterFilter, Selection
from neuroinit.model.problem import Problem


@dataclass(frozen=True, kw_only=True)
class NIO(Method):
    """Neural Initialization Optimization, with our defaults.

    A network that works is left alone. One that explodes or is dead gets one factor for all its
    weights, see :class:`CommonFactor`; only first-order gradients are needed for this. With a
    number for ``gamma``, the gradient norm is brought to it, see :class:`HeldNorm`. :meth:`paper`
    is the method exactly as in the paper, and :meth:`reference` the authors' released code.

    Args:
        gamma: Bound of the gradient norm; ``"auto"`` for none. For rules that need one, ``"auto"``
            is the loss of a network whose parameters are near zero, times ``gamma_per_loss``.
        gamma_per_loss: See ``gamma``.
        rate: The step size of training: ``lr / (1 - momentum)`` for SGD, ``lr`` for Adam. If the
            first step would be too long, the weights are shrunk. For rules with a bound and SGD,
            ``gamma="auto"`` is ``sqrt(loss / rate)``, within a factor of 2 of its value without a
            ``rate``. :func:`nio_` reads it from an ``optimizer``.
        family: ``"sgd"`` or ``"adam"``: the kind of optimizer that ``rate`` belongs to.
        sub_batches: Number of sub-batches ``D``, or ``"samples"``.
        overlap: Overlap ratio ``r``.
        split: How a batch is cut: ``"cover"``, ``"paper"`` (Eq. 7) or ``"reference"``.
        batch_stats: BatchNorm's statistics are those of the ``"sub-batch"`` or of the ``"batch"``.
        rule: How the scales move; ``None`` for ``CommonFactor()`` if ``gamma`` is ``"auto"``, and
            ``HeldNorm()`` if it is a number.
        gradients_of: ``gradients_of(module, key, tensor)``: whether the loss is differentiated by a
            parameter; ``None`` for all trainable ones.
        min_bias_scale: Lower clamp for names with ``bias``; ``None`` for ``min_scale``.
        steps, lr, min_scale, include, exclude, reinit_zeros, tolerance: See :class:`Method`.

    Example:
        >>> NIO(steps=40, gamma=2.0).sub_batches
        8
    """

    steps: int = 40
    lr: float = 0.3
    gamma: float | str = "auto"
    gamma_per_loss: float = 1.0
    rate: float | None = None
    family: str = "sgd"
    sub_batches: int | str = USUAL
    overlap: float = 0.0
    split: str = "cover"
    batch_stats: str = "sub-batch"
    rule: Rule | None = None
    gradients_of: ParameterFilter | None = None
    min_bias_scale: float | None = None

    engines: ClassVar[tuple[str, ...]] = ("keep", "stream", "differences")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma != "auto":
            check_number("gamma", self.gamma, 0.0, also='or "auto"')
        check_number("gamma_per_loss", self.gamma_per_loss, 0.0)
        if self.rate is not None:
            check_number("rate", self.rate, 0.0)
        check_split(self.sub_batches, self.overlap, self.split, self.batch_stats)
        if self.sub_batches != "samples":
            check_count("sub_batches", self.sub_batches, 2, 'or "samples"')
        check_choice("family", self.family, FAMILIES)
        if self.rate is None and self.family != "sgd":
            raise ValueError(
                f"`family = {self.family!r}` is the kind of optimizer that `rate` belongs to. Pass "
                "`rate`, too."
            )
        if self.rule is None:
            rule = CommonFactor() if self.gamma == "auto" else HeldNorm()
            object.__setattr__(self, "rule", rule)
        check_instance("rule", self.rule, Rule, "a rule such as `HeldNorm()` or `BoundedAscent()`")
        if self.gradients_of is not None:
            check_callable("gradients_of", self.gradients_of)
        if self.min_bias_scale is not None:
            check_number("min_bias_scale", self.min_bias_scale, 0.0, 1.0, closed=True)

    @classmethod
    def paper(cls, preset: str | None = None, **changes: Unpack[NIOFields]) -> NIO:
        """Exactly as in the paper: Alg. 3, Eq. 7, plain steps.

        Args:
            preset: One of the paper's settings (Appendix B), by name: see ``neuroinit.PRESETS``;
                without one, those of ``cifar10-resnet110``.
            **changes: Fields that differ from it.

        Example:
            >>> NIO.paper("cifar10-resnet110", steps=10).lr
            0.1
        """
        fields: NIOFields = {**PAPER, **preset_fields(preset), **changes}
        return cls(**fields)

    @classmethod
    def reference(cls, preset: str | None = None, **changes: Unpack[NIOFields]) -> NIO:
        """The authors' released code, with the settings of its ResNet-50 run.

        Args:
            preset: One of the paper's settings (Appendix B), by name: see ``neuroinit.PRESETS``.
            **changes: Fields that differ from it.

        Example:
            >>> NIO.reference(gamma=3.0).batch_stats
            'batch'
        """
        fields: NIOFields = {**REFERENCE, **preset_fields(preset), **changes}
        return cls(**fields)

    def resolve(self, problem: Problem, batch: Batch) -> NIO:
        """``gamma="auto"`` becomes a multiple of the loss with parameters near zero."""
        if self.gamma != "auto":
            return self
        bounds_norm = self._rule.bounds_norm
        loss = unit_loss(problem, batch, weights_only=not bounds_norm)
        gamma = self.gamma_per_loss * loss
        if bounds_norm and self.rate is not None and self.family == "sgd":
            gamma = min(max(math.sqrt(loss / self.rate), gamma / 2), 2 * gamma)
        return dataclasses.replace(self, gamma=gamma)

    def settings(self) -> dict[str, JSON]:
        """All fields; without a bound ``gamma`` stays ``"auto"``, and ``unit`` is ``L_0``."""
        found = super().settings()
        if not self._rule.bounds_norm:
            found |= {"gamma": "auto", "unit": self.gamma}
        return found

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """Scales of 1, and the rule's state."""
        return problem.unit_scales, self._rule.init(problem.unit_scales)

    def final_scales(self, scales: Tensor, state: State) -> Tensor:
        """The rule's last scales."""
        return self._rule.final_scales(scales, state)

    @property
    def second_order(self) -> bool:
        """Whether the rule differentiates gradients."""
        return self._rule.second_order

    @property
    def _rule(self) -> Rule:
        """The rule, which is set when the method is created."""
        assert self.rule is not None
        return self.rule

    def plan(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The sub-batches of a step, and the pieces that they are computed from."""
        return make_plan(
            problem, batch, self.sub_batches, self.overlap, self.split, self.batch_stats, microbatch
        )

    def measured(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """Statistics before and after use the sub-batches of a step."""
        return self.plan(problem, batch, microbatch)

    @property
    def least_samples(self) -> int:
        """One sample for every sub-batch."""
        return 2 if self.sub_batches == "samples" else int(self.sub_batches)

    def for_samples(self, problem: Problem, size: int) -> NIO:
        """A copy with fewer sub-batches if there are fewer samples than sub-batches."""
        if size >= self.least_samples or size < 2:
            return self
        problem.warn_once(
            f"A batch has {size} samples, fewer than `sub_batches = {self.sub_batches}`: "
            f"`sub_batches = {size}` is used. Pass larger batches for a better result."
        )
        return dataclasses.replace(self, sub_batches=size)

    def fits(self, problem: Problem, size: int) -> bool:
        """Whether every sub-batch gets a sample; two with BatchNorm."""
        least = 1 if self.sub_batches == "samples" else int(self.sub_batches)
        return size >= least * (2 if problem.batch_norms else 1)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """The rule's step."""
        return self._rule.step(self, problem, batch, plan, engine, position)

    def selection(self) -> Selection:
        """Which parameters get a scale, and by which the loss is differentiated."""
        return dataclasses.replace(super().selection(), gradients_of=self.gradients_of)

    def lowest(self, names: list[str]) -> Tensor:
        """The lower clamp of every scale; a name with ``weight`` and ``bias`` counts as weight."""
        return lower_bounds(names, self.min_scale, self.min_bias_scale)
