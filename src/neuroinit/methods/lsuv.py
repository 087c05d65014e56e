"""LSUV: orthonormal weights, then the output of every layer scaled to unit variance, in order.

Mishkin and Matas, *All you need is a good init*, ICLR 2016. It needs inputs only: no labels, no
loss and no gradient.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch, Data
from neuroinit.common.checks import check_choice, check_count, check_number
from neuroinit.distributed.dtensor import whole
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan
from neuroinit.methods.base import Initialization, Step
from neuroinit.methods.classic.layers import EMBEDDINGS, is_affine
from neuroinit.methods.classic.schemes import Orthogonal
from neuroinit.methods.fields import LSUVFields
from neuroinit.methods.updates import Position
from neuroinit.model.borrowing import NORM_STATISTICS
from neuroinit.model.finite import check_finite
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session

MEASURES = ("variance", "deviation")


@dataclass(frozen=True, kw_only=True)
class LSUV(Initialization):
    """Layer-sequential unit variance.

    Weights get orthonormal values and biases zero. Then, for one layer after the other and while
    ``|Var(output) - 1| >= tolerance_var``, at most ``tries`` times::

        W <- W / sqrt(Var(output)).

    The layers are linear and convolutional ones, and ``nn.MultiheadAttention``, whose output
    projection is scaled. They are taken in the order in which they run, so one forward pass is
    enough: when a layer runs, the layers before it are final. A layer that runs twice is scaled
    when it first runs. A layer with a constant output, and a weight that is shared with an
    embedding, are left alone.

    Args:
        steps: Number of batches; each goes through the model once.
        tolerance_var: How far from 1 the variance of an output may be.
        tries: Largest number of corrections of a layer on one batch.
        measure: ``"variance"`` is the condition above, as in the paper. ``"deviation"`` replaces it
            by ``|std - 1| >= tolerance_var`` and takes unbiased estimates.
        batch_stats: BatchNorm uses the statistics of the ``"batch"``, or its ``"running"``
            statistics as in eval mode.
        redraw: ``False`` keeps the values of the model: its weights are only scaled.
        include: Shell patterns of the names of the parameters that take part.
        exclude: Shell patterns of those that do not, even if included.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.

    Example:
        >>> LSUV(tries=5).tolerance_var
        0.1
    """

    steps: int = 1
    tolerance_var: float = 0.1
    tries: int = 10
    measure: str = "variance"
    batch_stats: str = "batch"
    redraw: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps, 1)
        check_number("tolerance_var", self.tolerance_var, 0.0)
        check_count("tries", self.tries, 1)
        check_choice("measure", self.measure, MEASURES)
        check_choice("batch_stats", self.batch_stats, NORM_STATISTICS)

    @classmethod
    def reference(cls, **changes: Unpack[LSUVFields]) -> LSUV:
        """The ``lsuv`` package on PyPI (version 0.3.0), by one of the paper's authors.

        It differs from the defaults in three ways: the tolerance is that of the unbiased standard
        deviation, a layer gets up to eleven corrections, and the model is in eval mode, where
        BatchNorm uses its running statistics. ``docs/how-it-works/deviations.md`` lists more.

        Args:
            **changes: Fields that differ from it.

        Example:
            >>> LSUV.reference().tries
            11
        """
        fields: LSUVFields = {**_REFERENCE, **changes}
        return cls(**fields)

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Orthonormal weights, zero biases, and the rest as in :class:`Orthogonal`."""
        if not self.redraw:
            return {}
        drawn = Orthogonal(include=self.include, exclude=self.exclude, nonlinearity="linear")
        return drawn.draws(model)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One forward pass, in which every layer is scaled when it first runs."""
        point = problem.with_norm_statistics(self.batch_stats).at(position.scales)
        with (
            point.session() as session,
            torch.no_grad(),
            ExitStack() as stack,
        ):
            correction = _Correction(self, session)
            for module in problem.model.modules():
                if is_affine(module) or isinstance(module, nn.MultiheadAttention):
                    hook = module.register_forward_hook(  # before FSDP frees the weight
                        correction, with_kwargs=True, prepend=True
                    )
                    stack.callback(hook.remove)
            _run(session, batch)
        factors = [correction.factors.get(name, 1.0) for name in problem.scaled]
        return Step(position.scales * torch.tensor(factors, dtype=torch.float64, device="cpu"), {})


def _run(session: Session, batch: Batch) -> None:
    """A forward pass without gradients.

    Raises:
        ValueError: If the loss takes a gradient itself.
    """
    try:
        session.run(batch)
    except RuntimeError as error:
        if not any(text in str(error) for text in _NEEDS_GRADIENTS):
            raise
        raise ValueError(
            "LSUV runs forward passes without gradients, and `compute_loss` takes a gradient "
            "itself. Pass one that only calls the model, for example "
            "`compute_loss=lambda model, batch: model(batch[0]).mean()`."
        ) from error


_NEEDS_GRADIENTS = ("does not require grad", "vmap: ", "During a grad (vjp, jvp, grad, etc)")


class _Correction:
    """A forward hook that scales the weight of a layer until its output has unit variance.

    Args:
        method: The tolerance and the number of tries.
        session: The model holds the values of its point, which are scaled in place.

    Attributes:
        factors: Parameter name -> the factor that it was multiplied by.
    """

    def __init__(self, method: LSUV, session: Session) -> None:
        self.method, self.session, problem = method, session, session.problem
        shared = {n for module, _, n in problem.places if isinstance(module, EMBEDDINGS)}
        own = set(problem.scaled) - shared
        self.names = {m: n for m, key, n in problem.places if key == "weight" and n in own}
        self.factors: dict[str, float] = {}

    def __call__(
        self, module: nn.Module, inputs: tuple[Data, ...], keywords: dict[str, Data], output: Data
    ) -> Data:
        layer = _layer(module)
        name = self.names.get(layer)
        if name is None or name in self.factors:
            return output
        self.factors[name] = 1.0
        for _ in range(self.method.tries):
            factor = self._factor(_first(output), name)
            if factor is None:
                break
            self.session.scale_weight(layer, name, factor)
            self.factors[name] *= factor
            output = module.forward(*inputs, **keywords)
        return output

    def _factor(self, output: Tensor, name: str) -> float | None:
        """``1 / sqrt(Var(output))``; ``None`` within the tolerance and for a constant output."""
        deviation = self.method.measure == "deviation"
        correction = int(deviation and output.numel() > 1)
        variance = float(output.var(correction=correction))
        check_finite(variance, f"The variance of the output of the layer with `{name}`")
        measured = math.sqrt(variance) if deviation else variance
        if variance == 0 or abs(measured - 1) < self.method.tolerance_var:
            return None
        return math.pow(variance, -0.5)


def _layer(module: nn.Module) -> nn.Module:
    """The module whose weight the output of a layer is linear in.

    ``nn.MultiheadAttention`` uses the weight of its output projection without calling that module,
    so that only a hook of the attention module sees the output.
    """
    return module.out_proj if isinstance(module, nn.MultiheadAttention) else module


def _first(output: Data) -> Tensor:
    """The output of a layer without the attention weights; that of a sharded layer, gathered."""
    return whole(output[0] if isinstance(output, tuple) else output)


_REFERENCE: LSUVFields = {"measure": "deviation", "tries": 11, "batch_stats": "running"}
