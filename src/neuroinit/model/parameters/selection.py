"""Which parameters of a model get a scale, and which modules hold them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from neuroinit.common.errors import listed
from neuroinit.model.parameters.fresh_values import Draw

ParameterFilter = Callable[[nn.Module, str, Tensor], bool]
Place = tuple[nn.Module, str, str]


@dataclass(frozen=True)
class Selection:
    """Which parameters get a scale, and by which parameters the loss is differentiated.

    Args:
        include: Shell patterns of the names that get a scale.
        exclude: Shell patterns of the names that get none, even if included.
        gradients_of: ``gradients_of(module, key, tensor)``: whether the loss is differentiated by
            the parameter ``tensor``, which ``module`` holds as attribute ``key``. ``None``, or a
            function that selects nothing, stands for all trainable parameters.
        scales_of: ``scales_of(module, key, tensor)``: whether a parameter may get a scale.
        draws: ``draws(model)``: parameter name -> how fresh values are drawn.
        needs_loss: Whether a loss is required.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    gradients_of: ParameterFilter | None = None
    scales_of: ParameterFilter | None = None
    draws: Callable[[nn.Module], dict[str, Draw]] | None = None
    needs_loss: bool = True

    def takes(self, name: str) -> bool:
        """Whether the patterns select a parameter of this name."""
        return _matches(name, self.include) and not _matches(name, self.exclude)

    def differentiated(self, model: nn.Module) -> list[str]:
        """Names of the parameters whose gradients are computed."""
        named = dict(model.named_parameters())
        return _wanted(model, named, self.gradients_of) or trainable(named)

    def scaled(self, model: nn.Module, zeros: Collection[str], drawn: Collection[str]) -> list[str]:
        """Names of the parameters that get a scale.

        Args:
            model: The user's module, without wrappers.
            zeros: Names of all-zero tensors, which no scale can change.
            drawn: Names of tensors that get fresh values.

        Raises:
            ValueError: If a pattern matches no parameter, or no parameter is left.
        """
        named = dict(model.named_parameters())
        self._check_patterns(list(named))
        wanted = _wanted(model, named, self.scales_of)
        chosen = [n for n in wanted if n not in zeros and self.takes(n)]
        if not chosen and not drawn:
            raise ValueError(
                f"Nothing to scale: of {len(trainable(named))} trainable parameters "
                f"{len(zeros)} are all zero and the rest is ruled out by "
                f"`include = {self.include}` and `exclude = {self.exclude}`."
            )
        return chosen

    def _check_patterns(self, names: list[str]) -> None:
        unmatched = [p for p in self.exclude if not fnmatch.filter(names, p)]
        if not any(fnmatch.filter(names, p) for p in self.include):
            unmatched = [*self.include, *unmatched]
        if unmatched:
            raise ValueError(
                f"Pattern {listed(unmatched)} in `include` or `exclude` matches no parameter. "
                f"The parameters are: {listed(names)}."
            )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _wanted(
    model: nn.Module, named: Mapping[str, Tensor], selects: ParameterFilter | None
) -> list[str]:
    """Names of the trainable parameters that a function selects; ``None`` selects all."""
    if selects is None:
        return trainable(named)
    names = {n for module, key, n in places(model) if selects(module, key, named[n])}
    return [n for n in trainable(named) if n in names]


def trainable(named: Mapping[str, Tensor]) -> list[str]:
    """Names of the parameters that require a gradient; complex ones are left out."""
    return [n for n, p in named.items() if p.requires_grad and not p.is_complex()]


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside ``torch.compile``, DDP, DataParallel and Fabric wrappers."""
    while True:
        inner = [model._modules.get(key) for key in ("_orig_mod", "_original_module")]
        found = next((module for module in inner if module is not None), None)
        if found is not None:
            model = found
        elif isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        else:
            return model


def places(model: nn.Module) -> list[Place]:
    """``(module, key, name)`` for every attribute that is a parameter; several if it is tied."""
    names = {id(p): n for n, p in model.named_parameters()}
    return [
        (module, key, names[id(tensor)])
        for module in model.modules()
        for key, tensor in module._parameters.items()
        if tensor is not None
    ]
