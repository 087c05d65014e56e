"""Options of sharded models, and the memory that the plan counts on."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tests.utils.ranks import run
from tests.utils.shared import batches
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import neuroinit as ni
from benchmarks.faults.users.checks import Broken, Case, near, sure, told, unchanged

METHOD = ni.NIO(steps=2, rule=ni.HeldNorm(), gamma=0.5)
RANKS = 2


def network() -> nn.Module:
    """A smooth network."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 3)
    ).double()


def sharded(**options: Any) -> dict[str, Any]:
    """What a call on an FSDP2 model leads to, and the dtypes of its forward passes."""
    model, dtypes = network(), set[str]()
    if options.pop("single", False):
        model = model.float()
    model[0].register_forward_hook(lambda m, i, output: dtypes.add(str(output.dtype)))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    before = [p.full_tensor().clone() for p in model.parameters()]  # type: ignore[attr-defined]
    data = [(x.to(next(model.parameters()).dtype), y) for x, y in batches()]
    found: dict[str, Any] = {"error": "", "scales": None}
    method = options.pop("method", METHOD)
    try:
        result = ni.optimize(model, data, F.cross_entropy, method, engine="differences", **options)
        found["scales"] = result.scales
    except (ValueError, RuntimeError) as error:
        found["error"] = str(error)
    after = [p.full_tensor() for p in model.parameters()]  # type: ignore[attr-defined]
    found["same"] = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return {**found, "dtypes": sorted(dtypes)}


def on_rank(rank: int) -> dict[str, Any]:
    """All calls, one after the other."""
    return {
        "plain": sharded(),
        "autocast": sharded(autocast=torch.bfloat16, single=True),
        "autocast, first order": sharded(autocast=torch.bfloat16, single=True, method=ni.NIO()),
        "microbatch": sharded(microbatch=4),
    }


@functools.cache
def outcomes() -> list[dict[str, Any]]:
    """What two ranks found."""
    with tempfile.TemporaryDirectory() as folder:
        found = run(RANKS, on_rank, folder, seconds=300)
    for one in found:
        if one is None or "value" not in one:
            raise Broken(f"the ranks ended: {one}")
    return [one["value"] for one in found]


def same_scales() -> None:
    """Without options: what the whole model finds."""
    expected = ni.optimize(network(), batches(), F.cross_entropy, METHOD).scales
    for one in outcomes():
        near(one["plain"]["scales"], expected, 1e-5)


def casts(name: str) -> None:
    """``autocast=`` is used in the passes of a sharded model."""
    for one in outcomes():
        sure("torch.bfloat16" in one[name]["dtypes"], f"dtypes {one[name]['dtypes']}")
        sure(one[name]["scales"] or "too inexact" in one[name]["error"], one[name]["error"])


def small_pieces() -> None:
    """``microbatch=`` is refused with the reason."""
    for one in outcomes():
        sure("not supported for sharded models" in one["microbatch"]["error"], "another error")


def untouched() -> None:
    """The model is as before, however a call ends."""
    for one in outcomes():
        sure(all(found["same"] for found in one.values()), "a model has changed")


def planned(limit: int, engine: str | None) -> None:
    """A limit of memory leads to the same scales, with the engine that it allows."""
    model, expected = network(), ni.optimize(network(), batches(), F.cross_entropy, METHOD)
    with unchanged(model):
        found = ni.optimize(model, batches(), F.cross_entropy, METHOD, memory_limit=limit)
    near(found.scales, expected.scales, 1e-9)
    sure(engine is None or found.engine == engine, f"engine {found.engine}")


def too_small() -> None:
    """A limit below the smallest piece is said."""
    model = network()
    with unchanged(model), told("A step needs about", "`memory_limit`"):
        ni.optimize(model, batches(), F.cross_entropy, METHOD, memory_limit=1)


def cases() -> Iterator[Case]:
    """Item 5."""
    yield Case(5, "FSDP2 finds what the whole model finds", same_scales)
    for name in ("autocast", "autocast, first order"):
        yield Case(
            5,
            f"FSDP2: `autocast=`, {name.partition(', ')[2] or 'with a bound'}",
            partial(casts, name),
        )
    yield Case(5, "FSDP2: `microbatch=`", small_pieces)
    yield Case(5, "FSDP2: models as before", untouched)
    for limit, engine in ((2**30, "keep"), (40_000, None), (20_000, None), (10_000, "stream")):
        yield Case(5, f"`memory_limit={limit}`", partial(planned, limit, engine))
    yield Case(5, "a limit that is too small", too_small)
