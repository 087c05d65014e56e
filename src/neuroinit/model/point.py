"""A point: the values of all parameters at which a model is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from neuroinit.model.problem import Problem
    from neuroinit.model.session import Session


@dataclass(frozen=True, eq=False)
class Point:
    """The values of all parameters at which a model is evaluated, ``theta_k = w_k W_k``.

    Made by :meth:`Problem.at` or :meth:`Problem.at_values`. Several points can exist at once.

    Args:
        problem: The model and its loss.
        values: Parameter name -> tensor ``theta_k``, an autograd leaf.
        scales: Parameter name -> scale ``w_k``; parameters that have no scale are missing.
    """

    problem: Problem
    values: dict[str, Tensor]
    scales: dict[str, float]

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """The values of some parameters, in the order of the names."""
        return [self.values[n] for n in names]

    def moved(self, steps: dict[str, Tensor]) -> Point:
        """The point ``theta + step``: new leaves, the same scales.

        Args:
            steps: Parameter name -> step; other parameters do not change.
        """
        values = {
            n: (t.detach() + steps[n] if n in steps else t.detach()).requires_grad_(t.requires_grad)
            for n, t in self.values.items()
        }
        return replace(self, values=values)

    def session(
        self, second_order: bool = False, scale_variables: bool = False, autocast: bool = True
    ) -> AbstractContextManager[Session]:
        """Let the model hold these values, and evaluate it: ``with point.session() as session:``.

        Args:
            second_order: Use operators that can be differentiated twice.
            scale_variables: Multiply every weight by a scalar variable where it is used, to get the
                derivative by its scale, see ``kernels/products/linear_and_convolution.py``. Only
                for one backward with ``create_graph``, then :meth:`Session.second_backward`.
            autocast: Use the problem's autocast dtype, if it has one.
        """
        return self.problem.session_type.open(self, second_order, scale_variables, autocast)
