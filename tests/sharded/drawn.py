"""Models that are sharded on the meta device, and then initialized."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import neuroinit as ni
from tests.sharded.fsdp import whole
from tests.utils.shared import batches

CALLS = {
    "kaiming_": ni.kaiming_,
    "xavier_": lambda model: ni.xavier_(model, distribution="uniform"),
    "orthogonal_": ni.orthogonal_,
    "trunc_normal_": ni.trunc_normal_,
    "lsuv_": lambda model: ni.lsuv_(model, batches(1)),
}


class Net(nn.Module):
    """A few layers, of which one is used twice, and a norm."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.last = nn.Linear(5, 8), nn.Linear(8, 6), nn.Linear(6, 3)
        self.again, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x):
        x = self.down(torch.tanh(self.up(x)))
        return self.last(self.norm(self.again(torch.tanh(self.again(x)))))


def sharded(kind):
    """Without values, as one makes models that are too large for one device."""
    with torch.device("meta"):
        model = Net().double()
    if kind == "tensor":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    elif kind == "both":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(model, mesh["tensor"], plan)
        mesh = mesh["data"]
    if kind != "tensor":
        mesh = mesh if kind == "both" else init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(model.again, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model.to_empty(device="cpu")


def values_of(name, model):
    """What a call draws, and its result."""
    result = CALLS[name](model)
    found = {n: whole(p).tolist() for n, p in model.named_parameters()}
    return found, result


def drawn(rank, kinds):
    found = {}
    for kind in kinds:
        for name in CALLS:
            torch.manual_seed(rank)  # the values are those of rank 0
            values, result = values_of(name, sharded(kind))
            again = sharded(kind)
            result.apply_(again)
            same = values == {n: whole(p).tolist() for n, p in again.named_parameters()}
            found[f"{kind} {name}"] = [values, same]
    return found
