"""Models that were sharded before they are optimized."""

import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests.utils.moving import ni
from tests.utils.shared import batches

METHOD = ni.NIO(steps=3)


def smooth(sharding=None, width=9):
    """Nine units are not the same number on two ranks; tensor parallelism needs an even one."""
    torch.manual_seed(0)
    sizes = [(5, width), (width, width), (width, 3)]
    first, second, last = (nn.Linear(a, b, dtype=torch.float64) for a, b in sizes)
    model = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if sharding else None
    if sharding == "fsdp":
        fully_shard(model[2], mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif sharding == "tensor":
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach()


def optimize_sharded(sharding, width):
    """Scales of a sharded model, whether it is as before, and whether scaling it works."""
    model = smooth(sharding, width)
    before = {n: whole(p).clone() for n, p in model.named_parameters()}
    result = ni.optimize(model, batches(), F.cross_entropy, METHOD, engine="differences")
    unchanged = all(torch.equal(whole(p), before[n]) for n, p in model.named_parameters())
    no_gradients = all(p.grad is None for p in model.parameters())
    result.apply_(model)
    scaled = all(
        torch.equal(whole(p), before[n] * result.scales[n]) for n, p in model.named_parameters()
    )
    model(batches()[0][0]).sum().backward()  # it can still be trained
    return {
        "scales": result.scales,
        "after": [result.after.cosine, result.after.norm, result.after.agreement],
        "promises": [unchanged, no_gradients, scaled],
    }


def refuse_sharded():
    """Texts of the errors that a sharded model meets."""
    found = []
    for method, engine in ((METHOD, "auto"), (ni.GradInit(steps=2), "differences")):
        try:
            ni.optimize(smooth("fsdp"), batches(), method=method, engine=engine)
        except ValueError as error:
            found.append(str(error))
    torch.manual_seed(0)
    sizes = [5, *[64] * 8]
    layers = [
        layer
        for a, b in itertools.pairwise(sizes)
        for layer in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())
    ]
    model = nn.Sequential(*layers, nn.Linear(64, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    data = [(x.float(), y) for x, y in batches()]
    try:
        ni.optimize(model, data, method=METHOD, engine="differences")
    except ValueError as error:
        found.append(str(error))
    return found


def measured_after_a_pass(rank):
    """The error of a sharded model whose tensors FSDP has gathered for a pass, and keeps."""
    model = fully_shard(smooth(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    model(batches()[0][0])
    gathered = not any(hasattr(p, "full_tensor") for p in model.parameters())
    try:
        ni.gradient_stats(model, batches()[0])
    except ValueError as error:
        return gathered, str(error)
    return gathered, ""


def with_options():
    """What `microbatch=` and `autocast=` lead to: an error, and the dtype of the forward passes."""
    texts, dtypes = [], set()
    data = [(x.float(), y) for x, y in batches()]
    for options in ({"microbatch": 4}, {"autocast": torch.bfloat16}):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))
        if "autocast" in options:
            model[0].register_forward_hook(lambda m, i, output: dtypes.add(str(output.dtype)))
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        try:
            ni.optimize(model, data, method=METHOD, engine="differences", **options)
        except ValueError as error:
            texts.append(str(error))
    return [*texts, sorted(dtypes)]


def all_sharded(rank):
    return {
        "options": with_options(),
        "fsdp": optimize_sharded("fsdp", 9),
        "tensor": optimize_sharded("tensor", 8),
        "refused": refuse_sharded(),
    }
