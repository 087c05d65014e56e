"""GradInit: scales with which the first step of the optimizer reduces the loss most.

Zhu et al., *GradInit: Learning to Initialize Neural Networks for Stable and Efficient Training*,
NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Unpack

from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_callable, check_choice, check_number, check_overlap
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan, make_plan
from neuroinit.methods.base import Method, Step
from neuroinit.methods.fields import GradInitFields
from neuroinit.methods.trial_step import trial_objective
from neuroinit.methods.updates import (
    Position,
    State,
    TwoMomentAdam,
    Update,
    check_update,
    lower_bounds,
)
from neuroinit.model.arguments.optimizers import FAMILIES
from neuroinit.model.parameters.selection import ParameterFilter, Selection
from neuroinit.model.problem import Problem

# lr and steps of the authors' CIFAR-10 runs; all other fields have their defaults
GRADINIT_PRESETS: dict[str, GradInitFields] = {
    "cifar10-vgg19": {"lr": 1e-1, "steps": 390},
    "cifar10-vgg19-nobn": {"lr": 1e-2, "steps": 390},
    "cifar10-resnet110": {"lr": 1e-3, "steps": 390},
    "cifar10-resnet110-nobn": {"lr": 5e-2, "steps": 390},
    "cifar10-densenet100": {"lr": 1e-2, "steps": 780},
    "cifar10-densenet100-nobn": {"lr": 5e-3, "steps": 780},
    "cifar10-wrn28-10": {"lr": 3e-3, "steps": 780},
}


def released_layers(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Whether a parameter is a weight or bias that GradInit's released code differentiates by.

    That is so in Conv2d, Linear, BatchNorm2d, and in the scalar modules ``Scale`` and ``Bias`` of
    the authors' networks, which are recognized by their class names.
    """
    known = isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d))
    return (known or type(module).__name__ in ("Scale", "Bias")) and key in ("weight", "bias")


@dataclass(frozen=True, kw_only=True)
class GradInit(Method):
    """GradInit: minimize the loss after one optimizer step, under a bound on the gradient norm.

    Every batch is cut into two overlapping sub-batches ``S`` and ``S~``, by default two thirds of
    it each. With ``g`` the gradient of ``S`` at ``theta = {w_k W_k}``, a step descends::

        ||g||                                 if ||g|| > gamma,
        L(S~; theta - eta A(g)) / eta         otherwise,

    where ``A(g) = g / ||g||`` for SGD and ``A(g) = sign(g)`` for Adam. As in the released code,
    ``A(g)`` is a constant for the derivative. ``docs/how-it-works/deviations.md`` lists how the
    defaults differ from that code; :meth:`reference` is the same as that code.

    Args:
        steps: Largest number of steps.
        lr: Step size of the scales.
        gamma: Bound of the gradient norm: the L2 norm for SGD, the L1 norm for Adam.
        eta: Length of the trial step of the optimizer, such as its learning rate.
        family: ``"sgd"`` or ``"adam"``: the kind of optimizer that you will train with. Adaptive
            optimizers count as Adam. :func:`gradinit_` reads it from an ``optimizer``.
        normalize: For SGD, ``A(g) = g / ||g||``; if false, ``A(g) = g``.
        through_update: Differentiate ``A(g)`` as well.
        overlap: Fraction of the samples of ``S~`` that are also in ``S``. With one half, a batch of
            192 samples gives two sub-batches of 128.
        update: The update of the scales.
        gradients_of: ``gradients_of(module, key, tensor)``: whether a parameter counts in the norm
            and moves in the trial step; ``None`` for all trainable ones.
        min_bias_scale: Lower bound of the scales of names with ``bias``; ``None`` for
            ``min_scale``.
        min_scale, include, exclude, reinit_zeros, tolerance: See :class:`Method`.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.

    Example:
        >>> GradInit(steps=100, family="adam", gamma=50.0).eta
        0.1
    """

    steps: int = 390
    lr: float = 0.01
    gamma: float = 1.0
    eta: float = 0.1
    family: str = "sgd"
    normalize: bool = True
    through_update: bool = False
    overlap: float = 0.5
    update: Update = field(default_factory=TwoMomentAdam)
    gradients_of: ParameterFilter | None = None
    min_bias_scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gamma", self.gamma, 0.0)
        check_number("eta", self.eta, 0.0)
        check_choice("family", self.family, FAMILIES)
        check_overlap(self.overlap)
        check_update(self.update)
        if self.gradients_of is not None:
            check_callable("gradients_of", self.gradients_of)
        if self.min_bias_scale is not None:
            check_number("min_bias_scale", self.min_bias_scale, 0.0, 1.0, closed=True)

    @classmethod
    def preset(cls, name: str, **changes: Unpack[GradInitFields]) -> GradInit:
        """Our form with the step size and number of steps of one of the authors' CIFAR-10 runs.

        Args:
            name: One of ``neuroinit.GRADINIT_PRESETS``.
            **changes: Fields that differ from it.

        Raises:
            ValueError: If there is no such preset.

        Example:
            >>> GradInit.preset("cifar10-densenet100").steps
            780
        """
        check_choice("name", name, tuple(GRADINIT_PRESETS))
        fields: GradInitFields = {**GRADINIT_PRESETS[name], **changes}
        return cls(**fields)

    @classmethod
    def reference(
        cls, preset: str = "cifar10-resnet110", **changes: Unpack[GradInitFields]
    ) -> GradInit:
        """The authors' released code for image classifiers.

        It differs from the defaults in three ways. Scales of biases may reach zero. The norm and
        the optimizer step that is tried use Conv2d, Linear and BatchNorm2d only. Parameters without
        ``weight`` or ``bias`` in their name get no scale. Also, it never stops early.

        Args:
            preset: One of ``neuroinit.GRADINIT_PRESETS``.
            **changes: Fields that differ from it.

        Raises:
            ValueError: If there is no such preset.

        Example:
            >>> GradInit.reference("cifar10-densenet100").min_bias_scale
            0.0
        """
        check_choice("preset", preset, tuple(GRADINIT_PRESETS))
        fields: GradInitFields = {**_REFERENCE, **changes}
        return cls.preset(preset, **fields)

    def selection(self) -> Selection:
        """Which parameters get a scale, and which count in the norm and move in the step."""
        return replace(super().selection(), gradients_of=self.gradients_of)

    def lowest(self, names: list[str]) -> Tensor:
        """The lower bound of every scale: ``min_scale``, or ``min_bias_scale`` for biases."""
        return lower_bounds(names, self.min_scale, self.min_bias_scale)

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """All scales one, and the state of the update."""
        return problem.unit_scales, self.update.init(problem.unit_scales)

    def plan(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The sub-batches ``S`` and ``S~``."""
        return make_plan(
            problem, batch, 2, self.overlap, "cover", "sub-batch", microbatch, serial=True
        )

    def fits(self, problem: Problem, size: int) -> bool:
        """Whether ``S`` and ``S~`` get a sample each; two each with BatchNorm."""
        return size >= (4 if problem.batch_norms else 2)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """Descend the norm above the bound, and the loss after an optimizer step below it."""
        found = trial_objective(self, problem.at(position.scales), batch, plan, engine)
        scales, state = self.update.step(
            position.scales, found.derivative, self.lr, found.constrained, position.state
        )
        return Step(
            scales=scales,
            state=state,
            constrained=found.constrained,
            loss=found.loss,
            norm=found.norm,
            norm_max=found.norm,
            norm_min=found.norm,
            value=found.value,
        )


_REFERENCE: GradInitFields = {
    "gradients_of": released_layers,
    "include": ("*weight*", "*bias*"),
    "min_bias_scale": 0.0,
    "tolerance": 0.0,
}
