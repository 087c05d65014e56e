"""The user's optimizer: checks, copies for other parameters, learning rate and family."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuroinit.common.errors import warn

OptimizerLike = Optimizer | Callable[[Iterable[Tensor]], Optimizer]
ParameterGroup = dict[str, Any]  # torch's type of an entry of `param_groups`
FAMILIES = ("sgd", "adam")


class RateFields(TypedDict, total=False):
    """Fields of :class:`NIO` that describe the optimizer of the training."""

    rate: float
    family: str


def twin_of(optimizer: OptimizerLike, model: nn.Module, values: dict[str, Tensor]) -> Optimizer:
    """A new optimizer of the same class and settings for copies of the model's parameters.

    Args:
        optimizer: An optimizer of the model's parameters, or a function that makes an optimizer
            of given parameters.
        model: The user's module.
        values: Parameter name -> copy.

    Raises:
        ValueError: If the function makes an optimizer of other parameters than those given.
    """
    if not isinstance(optimizer, Optimizer):
        made = _made_by(optimizer, [v for v in values.values() if v.requires_grad])
        given = {id(v) for v in values.values()}
        if any(id(p) not in given for group in made.param_groups for p in group["params"]):
            raise ValueError(
                "The function `optimizer` should make an optimizer of the parameters that it is "
                "given, such as `lambda p: SGD(p, lr=0.1)`. Found others in it."
            )
        return made
    twins = {id(p): values[n] for n, p in model.named_parameters()}
    state, empty = optimizer.state, copy.copy(optimizer.state)
    empty.clear()
    optimizer.state = empty
    try:  # without the state, such as momentum: training has not begun
        return _copied(optimizer, dict(twins))
    finally:
        optimizer.state = state


def _made_by(function: Callable[[Iterable[Tensor]], Optimizer], given: list[Tensor]) -> Optimizer:
    made = function(given)
    if not isinstance(made, Optimizer):
        raise TypeError(
            "Parameter `optimizer` should be an optimizer, or a function of parameters that makes "
            f"one. It returned a `{type(made).__name__}`."
        )
    return made


@contextmanager
def others_frozen(model: nn.Module, optimizer: OptimizerLike) -> Iterator[None]:
    """A context in which the parameters that an optimizer does not hold are frozen."""
    if not isinstance(optimizer, Optimizer):
        yield
        return
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in held]
    if len(others) == sum(p.requires_grad for p in model.parameters()):
        raise ValueError(
            "Parameter `optimizer` holds no parameter of the model. Make it with "
            "`model.parameters()`, or pass a function such as `lambda p: SGD(p, lr=0.1)`."
        )
    try:
        for parameter in others:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)


def _copied(optimizer: Optimizer, memo: dict[int, object]) -> Optimizer:
    """A deep copy with all attributes; ``copy.deepcopy`` copies settings and state only."""
    twin = copy.deepcopy(optimizer, memo)
    for key, value in vars(optimizer).items():
        if key != "step" and key not in vars(twin):  # a scheduler's `step` is bound to the original
            setattr(twin, key, copy.deepcopy(value, memo))
    return twin


def check_optimizer(optimizer: object) -> None:
    """Raise for an unusable optimizer; warn if a scheduler has changed its learning rate."""
    if not isinstance(optimizer, Optimizer):
        if not callable(optimizer):
            raise TypeError(
                "Parameter `optimizer` should be a torch optimizer, or a function of parameters "
                "that makes one, such as `lambda p: torch.optim.SGD(p, lr=0.1)`. Found "
                f"`optimizer = {optimizer!r}`."
            )
        return
    if not any(group.get("lr", 1.0) for group in optimizer.param_groups):
        raise ValueError(
            "The learning rate of `optimizer` is 0 now. Call this before making a scheduler "
            "that warms up, or pass a function such as `lambda p: SGD(p, lr=0.1)`."
        )
    for group in optimizer.param_groups:
        if "initial_lr" in group and not math.isclose(group["initial_lr"], group["lr"]):
            warn(
                f"A scheduler has set the learning rate to {group['lr']:.3g}, of "
                f"{group['initial_lr']:.3g}; the former is used. Call this before "
                "making the scheduler, or pass a function such as `lambda p: SGD(p, lr=0.1)`.",
            )
            return


def rate_of(optimizer: OptimizerLike) -> float | None:
    """The step size of training; ``None`` if the optimizer has no learning rate.

    ``lr (1 - dampening) / (1 - momentum)`` for SGD: the sum of all steps due to one gradient. For
    other optimizers, which divide by the size of the gradient, ``lr``.

    Example:
        >>> round(rate_of(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)), 6)
        1.0
        >>> rate_of(torch.optim.Adam)
        0.001
    """
    check_optimizer(optimizer)
    made = _instance(optimizer)
    sgd = isinstance(made, torch.optim.SGD)
    return _largest([_rate(g) if sgd else _lr(g) for g in made.param_groups])


def learning_rate_of(optimizer: OptimizerLike) -> float | None:
    """The largest ``lr``; ``None`` if the optimizer has no learning rate.

    Example:
        >>> learning_rate_of(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
        0.1
    """
    check_optimizer(optimizer)
    return _largest([_lr(group) for group in _instance(optimizer).param_groups])


def rate_fields(optimizer: OptimizerLike) -> RateFields:
    """``rate`` and ``family`` for :class:`NIO`; empty if the optimizer has no learning rate.

    Example:
        >>> rate_fields(torch.optim.Adam)
        {'rate': 0.001, 'family': 'adam'}
    """
    rate = rate_of(optimizer)
    return {} if rate is None else {"rate": rate, "family": family_of(optimizer)}


def family_of(optimizer: OptimizerLike) -> str:
    """``"sgd"`` for optimizers whose step grows with the gradient, ``"adam"`` for the others.

    Example:
        >>> family_of(torch.optim.AdamW)
        'adam'
    """
    made = _instance(optimizer)
    return "sgd" if isinstance(made, (torch.optim.SGD, torch.optim.ASGD)) else "adam"


def _instance(optimizer: OptimizerLike) -> Optimizer:
    """An optimizer from which the settings can be read."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    return _made_by(optimizer, [torch.zeros(1, requires_grad=True)])


def _largest(rates: list[float]) -> float | None:
    return max(rates) if 0 < max(rates) < math.inf else None


def _lr(group: ParameterGroup) -> float:
    return float(group.get("lr", math.inf))


def _rate(group: ParameterGroup) -> float:
    lr, momentum = float(group["lr"]), float(group["momentum"])
    if not momentum:
        return lr
    return lr * (1 - float(group["dampening"])) / (1 - momentum) if momentum < 1 else math.inf
