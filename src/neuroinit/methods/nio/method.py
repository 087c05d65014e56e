"""NIO: raise GradCosine under a bound on the gradient norm, by one scale a tensor.

Yang et al., *Towards Theoretically Inspired Neural Initialization Optimization*, NeurIPS 2022.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import (
    check_callable,
    check_choice,
    check_count,
    check_instance,
    check_number,
)
from neuroinit.common.errors import NonFiniteError
from neuroinit.gradients.engines import Derivative, Engine
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.plan import Plan, check_split, make_plan
from neuroinit.methods.base import Method, Step
from neuroinit.methods.nio.presets import PRESETS
from neuroinit.methods.nio.rules import (
    BoundedAscent,
    HeldNorm,
    Rule,
    cosine_and_norm,
    distinct_cosine_and_sum,
    largest_norm,
    mean_norm,
)
from neuroinit.methods.updates import Plain, Position, State, TwoMomentAdam
from neuroinit.model.problem import Problem
from neuroinit.model.selection import LooksAt, Selection

NEARLY_ZERO = (1e-8, 1e-2)  # factors of all parameters; the second if the first is too small
LEAST_LOSS = 1e-7  # a smaller loss counts as zero
RETREATS = 12  # most times that a start which is not finite is shrunk


def released_layers(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Weights and biases of Conv2d, Linear and LayerNorm, as in the authors' released code."""
    return isinstance(module, (nn.Conv2d, nn.Linear, nn.LayerNorm)) and key in ("weight", "bias")


@dataclass(frozen=True, kw_only=True)
class NIO(Method):
    """Neural Initialization Optimization, with our defaults.

    The gradient norm is brought to ``gamma`` and held there while GradCosine is raised, see
    :class:`HeldNorm`. :meth:`paper` and :meth:`reference` are the paper to
    the letter and the authors' released code.

    Args:
        gamma: Bound of the gradient norm; ``"auto"`` takes it from the loss of a network whose
            output is zero, times ``gamma_per_loss``.
        gamma_per_loss: See ``gamma``; why it is 1 is in ``docs/defaults.md``.
        rate: How far training goes by a gradient, ``lr / (1 - momentum)`` for SGD: with it,
            ``"auto"`` is ``sqrt(loss / rate)``, where the first steps promise no more than the loss
            there is, but within a factor of 2 of what it is without. :func:`nio_` reads it from an
            ``optimizer``.
        sub_batches: Number of sub-batches ``D``, or ``"samples"``.
        overlap: Overlap ratio ``r``.
        split: How a batch is cut: ``"cover"``, ``"paper"`` (Eq. 8) or ``"reference"``.
        batch_stats: BatchNorm's statistics are those of the ``"sub-batch"`` or of the ``"batch"``.
        rule: What a step descends, and how it moves the scales.
        gradients_of: ``gradients_of(module, key, tensor)``: which parameters' gradients are looked
            at; ``None`` for all trainable ones.
        min_bias_scale: Lower clamp for names with ``bias``; ``None`` for ``min_scale``.

    Example:
        >>> NIO(steps=40, gamma=2.0).sub_batches
        8
    """

    steps: int = 40
    lr: float = 0.3
    gamma: float | str = "auto"
    gamma_per_loss: float = 1.0
    rate: float | None = None
    sub_batches: int | str = 8
    overlap: float = 0.0
    split: str = "cover"
    batch_stats: str = "sub-batch"
    rule: Rule = field(default_factory=HeldNorm)
    gradients_of: LooksAt | None = None
    min_bias_scale: float | None = None

    engines: ClassVar[tuple[str, ...]] = ("keep", "stream", "differences")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gamma, str):
            check_choice("gamma", self.gamma, ("auto",))
        else:
            check_number("gamma", self.gamma, 0.0, also='or "auto"')
        check_number("gamma_per_loss", self.gamma_per_loss, 0.0)
        if self.rate is not None:
            check_number("rate", self.rate, 0.0)
        check_split(self.sub_batches, self.overlap, self.split, self.batch_stats)
        if self.sub_batches != "samples":
            check_count("sub_batches", self.sub_batches, 2, 'or "samples"')
        check_instance("rule", self.rule, Rule, "a rule such as `HeldNorm()` or `BoundedAscent()`")
        if self.gradients_of is not None:
            check_callable("gradients_of", self.gradients_of)
        if self.min_bias_scale is not None:
            check_number("min_bias_scale", self.min_bias_scale, 0.0, 1.0, closed=True)

    @classmethod
    def paper(cls, preset: str | None = None, **changes: Any) -> NIO:
        """The paper to the letter: Alg. 3, Eq. 8, plain steps.

        Args:
            preset: One of the paper's settings (Appendix B), by name: see ``neuroinit.PRESETS``;
                without one, those of ``cifar10-resnet110``.
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
            preset: One of the paper's settings (Appendix B), by name: see ``neuroinit.PRESETS``.
            **changes: Fields that differ from it.

        Example:
            >>> NIO.reference(gamma=3.0).batch_stats
            'batch'
        """
        return cls(**{**_REFERENCE, **_preset(preset), **changes})

    def resolve(self, problem: Problem, batch: Batch) -> NIO:
        """``gamma="auto"`` becomes a multiple of the loss of a network that knows nothing."""
        if self.gamma != "auto":
            return self
        loss = loss_near_zero(problem, batch)
        if not math.isfinite(loss):
            raise NonFiniteError(f"The loss is {loss}, also with parameters near zero.")
        if loss <= LEAST_LOSS:
            loss = _own_loss(problem, batch)
            problem.warn_once(
                "The loss is zero for a network whose output is zero, so `gamma = 'auto'` takes "
                f"the bound from the model's own loss, {loss:.3g}. Pass a number to choose it."
            )
        usual = self.gamma_per_loss * loss
        if self.rate is None:
            return dataclasses.replace(self, gamma=usual)
        promised = math.sqrt(loss / self.rate)
        return dataclasses.replace(self, gamma=min(max(promised, usual / 2), 2 * usual))

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """The rule's start."""
        scales = self.rule.start(problem.scaled, self.lowest(problem.scaled))
        return scales, self.rule.init(scales)

    def plan(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The sub-batches, or what they are made of."""
        return make_plan(
            problem, batch, self.sub_batches, self.overlap, self.split, self.batch_stats, microbatch
        )

    def measured(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The sub-batches of a step."""
        return self.plan(problem, batch, microbatch)

    @property
    def least_samples(self) -> int:
        """One for every sub-batch."""
        return 2 if self.sub_batches == "samples" else int(self.sub_batches)

    def for_samples(self, problem: Problem, size: int) -> NIO:
        """With fewer sub-batches if there are fewer samples."""
        if size >= self.least_samples or size < 2:
            return self
        problem.warn_once(
            f"A batch has {size} samples, fewer than `sub_batches = {self.sub_batches}`: "
            f"`sub_batches = {size}` is used. Pass larger batches for a better result."
        )
        return dataclasses.replace(self, sub_batches=size)

    def fits(self, problem: Problem, size: int) -> bool:
        """A batch needs a sample for every sub-batch, and BatchNorm two."""
        least = 1 if self.sub_batches == "samples" else int(self.sub_batches)
        return size >= least * (2 if problem.batch_norms else 1)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One pass of Alg. 3's loop."""
        gamma = float(self.gamma)
        position, found = self._derivative(problem, batch, plan, engine, position)
        moments, position = found.moments, dataclasses.replace(position, loss=found.loss)
        scales, state = self.rule.move(position, found.gradient, moments, gamma, self.lr)
        return Step(
            scales=scales,
            state=state,
            constrained=self.rule.constrained(moments, gamma),
            loss=found.loss,
            cosine=float(moments.cosine),
            norm=float(moments.norms.mean()),
            norm_max=float(moments.norms.max()),
            norm_min=float(moments.norms.min()),
            value=found.value,
        )

    def _derivative(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> tuple[Position, Derivative]:
        """The derivative, from smaller scales if the rule can retreat from what is not finite."""
        lowest = self.lowest(problem.scaled)

        def descended(moments: Moments) -> Tensor:
            return self.rule.descended(position, moments, float(self.gamma))

        for attempt in range(RETREATS):
            point = problem.at(position.scales)
            try:
                found = engine.derivative(point, batch, plan, descended, self.rule.gram)
                return position, found
            except NonFiniteError as failure:
                if attempt == 0:
                    first_failure = failure
                smaller = self.rule.retreat(position, self.lr)
                if smaller is None:
                    break
                position = dataclasses.replace(position, scales=torch.maximum(smaller, lowest))
        raise first_failure

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


def loss_near_zero(problem: Problem, batch: Batch) -> float:
    """The loss of a network that ignores its input: all parameters are nearly zero.

    At exactly zero, normalized weights and outputs are not defined. A zero *output* would be wrong
    for models that end in a softmax, a sigmoid or a variance.
    """
    found = math.nan
    for factor in NEARLY_ZERO:
        point = problem.at(problem.unit_scales, {n: factor * t for n, t in problem.start.items()})
        with point.session() as session:
            found = session.loss_value(batch)
        if math.isfinite(found):
            break
    return found


def _own_loss(problem: Problem, batch: Batch) -> float:
    """The size of the loss of the model as it is.

    Raises:
        ValueError: If it is zero or not finite.
    """
    with problem.at(problem.unit_scales).session() as session:
        loss = abs(session.loss_value(batch))
    if not LEAST_LOSS < loss < math.inf:
        raise ValueError(
            f"`gamma = 'auto'` takes the bound from the loss, which is 0 with parameters near zero "
            f"and {loss} with the model's own. Pass a number, for example `gamma=1.0`."
        )
    return loss


_PAPER: dict[str, Any] = {
    "rule": BoundedAscent(cosine_and_norm, largest_norm, Plain()),
    "split": "paper",
    "tolerance": 0.0,
    **PRESETS["cifar10-resnet110"],
}

_REFERENCE: dict[str, Any] = {
    "rule": BoundedAscent(distinct_cosine_and_sum, mean_norm, TwoMomentAdam()),
    "split": "reference",
    "batch_stats": "batch",
    "gradients_of": released_layers,
    "include": ("*weight*", "*bias*"),
    "min_bias_scale": 0.0,
    "tolerance": 0.0,
    **PRESETS["imagenet-resnet50"],
}


def _preset(name: str | None) -> dict[str, Any]:
    if name is not None:
        check_choice("preset", name, tuple(PRESETS))
    return dict(PRESETS[name]) if name is not None else {}
