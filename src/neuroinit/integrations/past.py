"""Records whether a model was loaded or trained, so that such weights are left alone.

Modules are recorded by weak references, and do not change. ``load_state_dict`` leaves no mark on a
module, and torch has no hook for the loads of all modules. So :func:`record_loads` replaces it, for
the whole process, by a function that does the same and records the module. The files of the
callbacks call it when they are imported. When a callback is made would be too late: most scripts
load the weights first, and then make the trainer with its callbacks. Modules that were loaded
before the import, and copies, are recognized only by the values of their normalization layers.
"""

from __future__ import annotations

import enum
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.parameter import is_lazy

from neuroinit.common.errors import warn
from neuroinit.methods.base import Initialization

log = logging.getLogger(__name__)


class Event(enum.Flag):
    """An event that is recorded for a module."""

    NONE = 0
    LOADED = enum.auto()
    USED = enum.auto()  # a callback has initialized it, or was called when training began


_EVENTS: WeakKeyDictionary[nn.Module, Event] = WeakKeyDictionary()


def note(model: nn.Module, event: Event) -> None:
    """Record an event for a model and all modules in it."""
    for module in model.modules():
        _EVENTS[module] = _EVENTS.get(module, Event.NONE) | event


@dataclass(frozen=True)
class Reason:
    """Why a model is left alone.

    Args:
        text: A sentence for the user.
        expected: Whether a user expects it, for example when training is resumed. The reason is
            then logged, without a warning.
    """

    text: str
    expected: bool = False

    def report(self) -> None:
        """Log the reason or warn, see ``expected``."""
        if self.expected:
            log.info("%s", self.text)
        else:
            warn(self.text)


def reason_to_leave(
    model: nn.Module,
    method: Initialization,
    force: bool = False,
    stepped: frozenset[int] = frozenset(),
) -> Reason | None:
    """Why a method should not change a model; ``None`` if its weights are fresh.

    Only parameters that the method would change count: those that are trainable and selected by
    ``include`` and ``exclude``.

    Args:
        model: The user's module.
        method: The method that is about to run.
        force: Change weights that seem to be loaded or trained. Modules with the event ``USED`` are
            left alone nevertheless.
        stepped: The ids of parameters that the trainer's optimizer has changed.
    """
    touched = _touched(model, method)
    parts = dict(_parts(model, touched))
    used = [name for name, module in parts.items() if _had(module, Event.USED)]
    left = f"`InitCallback` left `{type(model).__name__}` alone"
    if used and len(used) == len(parts):
        return Reason(f"{left}: it was initialized or trained before.", expected=True)
    if used:
        return Reason(
            f"{left}: its part `{used[0]}` was initialized or trained before. To initialize the "
            'others, name all such parts, as in `exclude=("encoder.*",)`, or freeze them.'
        )
    evidence = "the optimizer has made steps" if touched & stepped else ""
    evidence = evidence or _evidence(model, parts, touched)
    if force or not evidence:
        return None
    return Reason(
        f"{left}: {evidence}. To initialize it nevertheless, pass "
        "`InitCallback(force=True)`. To initialize the new parameters of a model that was loaded "
        'in part, pass their names, such as `include=("head.*",)`.'
    )


def _had(module: nn.Module, event: Event) -> bool:
    return bool(_EVENTS.get(module, Event.NONE) & event)


def _touched(model: nn.Module, method: Initialization) -> set[int]:
    """The ids of the parameters that a method would change."""
    takes = method.selection().takes
    return {id(p) for n, p in model.named_parameters() if p.requires_grad and takes(n)}


def _parts(model: nn.Module, touched: set[int]) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module for every module that holds one of these parameters directly."""
    for name, module in model.named_modules():
        if any(id(p) in touched for p in module._parameters.values()):
            yield name, module


def _evidence(model: nn.Module, parts: dict[str, nn.Module], touched: set[int]) -> str:
    """A clause with the evidence that weights were loaded or trained; may be empty."""
    if _pretrained(model, touched):
        return "its weights come from `from_pretrained`"
    loaded = [name for name, module in parts.items() if _had(module, Event.LOADED)]
    if loaded:
        whole = len(loaded) == len(parts)
        what = f"`{type(model).__name__}`" if whole else f"its part `{loaded[0]}`"
        return f"{what} was loaded from a checkpoint or a state dict"
    for name, module in parts.items():
        changed = _changed_norm(module)
        if changed:
            return f"the {changed} of its {type(module).__name__} layer `{name}` are not new"
    return ""


def _pretrained(model: nn.Module, touched: set[int]) -> bool:
    """Whether transformers has loaded some of these parameters.

    Since version 5, transformers marks the parameters that it loads. ``copy.deepcopy`` drops the
    mark, but keeps an attribute of the model. Before version 5, only the config has the name of the
    checkpoint; a new model with a loaded config then counts as loaded, too.
    """
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return False
    marks = int(sys.modules["transformers"].__version__.split(".")[0]) >= 5
    for module in model.modules():
        if not isinstance(module, library.PreTrainedModel):
            continue
        marked = {id(p) for p in module.parameters() if hasattr(p, "_is_hf_initialized")}
        if marked & touched:
            return True
        loaded = hasattr(module, "_weight_conversions") if marks else bool(module.name_or_path)
        if loaded and not marked and any(id(p) in touched for p in module.parameters()):
            return True
    return False


def _changed_norm(module: nn.Module) -> str:
    """The names of tensors in a normalization layer that differ from new ones; may be empty.

    All such layers start with equal weights; BatchNorm also starts with a running mean of 0.
    """
    if "norm" not in type(module).__name__.lower() or any(map(is_lazy, module.parameters())):
        return ""
    mean = module._buffers.get("running_mean")
    if mean is not None and bool(mean.any()):
        return "running statistics"
    weight = module._parameters.get("weight")
    if weight is None or weight.dim() != 1 or not weight.numel():
        return ""
    return "weights" if bool(weight.min() != weight.max()) else ""


UNCOUNTED_LOADS: list[Callable[[nn.Module], bool]] = []  # loads that are not recorded


@functools.cache
def record_loads() -> None:
    """Make ``nn.Module.load_state_dict`` record which modules were loaded; the first call does."""
    load_state_dict = nn.Module.load_state_dict

    @functools.wraps(load_state_dict)
    def recording(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # as torch's
        found = load_state_dict(self, *args, **kwargs)
        if not any(uncounted(self) for uncounted in UNCOUNTED_LOADS):
            note(self, Event.LOADED)
        return found

    nn.Module.load_state_dict = recording  # type: ignore[method-assign]
