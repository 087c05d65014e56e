"""Arguments of ``compare``: names of methods, checks, and the held-out batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import nn

from neuroinit.choose.comparison_table import AS_IS
from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_callable, check_names
from neuroinit.common.layout import BatchLayout
from neuroinit.common.process.signals import allowed
from neuroinit.distributed.joined_batches import union
from neuroinit.distributed.ranks import Ranks
from neuroinit.methods.base import Initialization
from neuroinit.methods.warmup import Warmup
from neuroinit.run.optimize import check_engine

Train = Callable[..., float | tuple[float, Sequence[float]]]

_FRESH = "Parameter `model_factory` should make a fresh model on every call."
_FACTORY = "Pass a function, for example `lambda: Net()`."


def named_methods(
    methods: Sequence[Initialization | None] | Mapping[str, Initialization | None],
) -> dict[str, Initialization | None]:
    """The methods by name; those of a list are named by their class, and numbered if needed."""
    if isinstance(methods, Mapping):
        check_names("methods", methods)
        return dict(methods)
    if not isinstance(methods, (list, tuple)):
        raise TypeError(
            "Parameter `methods` should be a list or a dict of methods, such as "
            f"`[None, NIO()]`. Found `methods = {methods!r}`."
        )
    named: dict[str, Initialization | None] = {}
    for method in methods:
        name = AS_IS if method is None else type(method).__name__
        count = sum(known == name or known.startswith(f"{name} ") for known in named)
        named[f"{name} {count + 1}" if count else name] = method
    return named


def check_compared(
    model_factory: object,
    named: dict[str, Initialization | None],
    train: Train | None,
    engine: str,
) -> None:
    """Raise for a ``model_factory``, ``methods``, ``train`` or ``engine`` that cannot be used."""
    check_callable("model_factory", model_factory)
    if isinstance(model_factory, nn.Module):
        raise TypeError(f"{_FRESH} Found a module. {_FACTORY}")
    if not named:
        raise ValueError("Parameter `methods` is empty. Pass for example `[None, NIO()]`.")
    for name, method in named.items():
        if method is not None and not isinstance(method, Initialization):
            raise TypeError(
                f"Parameter `methods` should hold initializations such as `NIO()`, or `None`. "
                f"Found `{name} = {method!r}`."
            )
        check_engine(engine, method if method is not None and method.steps else None)
    if train is not None:
        check_callable("train", train)
        if any(isinstance(m, Warmup) for m in named.values()) and not _takes_two(train):
            raise TypeError(
                "With `Warmup` among the methods, `train` should take two arguments, "
                "`train(model, warmup)`: `warmup` is the `Warmup`, or `None`."
            )


def fresh(model: nn.Module, earlier: nn.Module | None) -> nn.Module:
    """The model, if it is not the one that was made before."""
    if model is earlier:
        raise TypeError(f"{_FRESH} It returned the same one twice. {_FACTORY}")
    return model


def _takes_two(train: Train) -> bool:
    try:
        inspect.signature(train).bind(None, None)
    except TypeError:
        return False
    return True


def checked_seeds(seeds: object) -> list[int]:
    """The seeds as a list of ints."""
    found = list(seeds) if isinstance(seeds, Iterable) else []
    if not found or not all(isinstance(seed, int) for seed in found):
        raise TypeError(
            f"Parameter `seeds` should be a list of ints such as `[0, 1, 2]`. Found `{seeds!r}`."
        )
    if not all(-(2**63) <= seed < 2**64 for seed in found):  # as `torch.manual_seed`
        raise ValueError(f"Parameter `seeds` should be 64-bit integers. Found `seeds = {found}`.")
    return found


def held_out(
    batches: Iterable[Batch], ranks: Ranks, layout: BatchLayout
) -> tuple[Batch, Iterable[Batch]]:
    """The first batch of all ranks, for the statistics; and the batches for the methods.

    The latter are all other batches of a list, or all batches of a DataLoader.
    """
    pool = list(batches) if isinstance(batches, (list, tuple)) else batches
    with allowed():
        held = next(iter(pool), None)
    if held is None:
        raise ValueError("Parameter `batches` yields nothing. Pass a list or a DataLoader.")
    common, _ = union(ranks, held, 0, layout)
    return common, pool[1:] if isinstance(pool, list) and len(pool) > 1 else pool
