"""Objectives and bounds of NIO: functions of the norms and cosines of the sub-batch gradients."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from neuroinit.gradients.measures import Moments

Measure = Callable[[Moments], Tensor]


def cosine(moments: Moments) -> Tensor:
    """``GC``, GradCosine."""
    return moments.cosine


def agreement(moments: Moments) -> Tensor:
    """GradCosine after the gradient with permuted targets is subtracted; doubles a step's cost."""
    return moments.agreement


def cosine_and_norm(moments: Moments) -> Tensor:
    """``GC + GN``, the objective of Eq. 8."""
    return moments.cosine + moments.norm


def distinct_cosine_and_sum(moments: Moments) -> Tensor:
    """Cosine of the pairs ``i != j`` plus the *sum* of the norms: the authors' released code."""
    return moments.distinct_cosine + moments.norms.sum()


def largest_norm(moments: Moments) -> Tensor:
    """The largest norm, which the paper bounds (Alg. 3, line 5)."""
    return moments.norms.max()


def mean_norm(moments: Moments) -> Tensor:
    """The mean norm, which the authors' released code bounds."""
    return moments.norm


def low_variance(moments: Moments) -> Tensor:
    """Minus the gradient variance, which the paper rejects (Sec. 6.3); reads the Gram matrix."""
    return -moments.variance


def low_variance_and_norm(moments: Moments) -> Tensor:
    """Minus the gradient variance, plus GN; reads the Gram matrix."""
    return moments.norm - moments.variance
