"""Sharded models with something unusual: partial gradients, empty shards, errors."""

import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.sharded.fsdp import smooth, whole
from tests.utils.moving import ni
from tests.utils.shared import batches

METHOD = ni.NIO(steps=3)


class Tokens(nn.Module):
    """A block of a transformer without attention, for inputs (samples, tokens, features)."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
        self.up, self.down, self.head = nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = x + self.down(torch.tanh(self.up(self.first(x))))
        return self.head(self.second(x)).mean(1)


def tokens(kind=None):
    """The model, whole or parallel: ``"sequence"`` on all ranks, ``"fsdp"`` over half of them."""
    torch.manual_seed(0)
    model = Tokens().double()
    with torch.no_grad():  # ones and zeros are the same on every shard
        for norm in (model.first, model.second):
            norm.weight.normal_()
            norm.bias.normal_()
    if kind == "sequence":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        plan = {
            "first": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
            "second": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
        parts = PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True
        )
        parallelize_module(model, mesh, {"": parts, **plan})
    elif kind == "fsdp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(model, mesh["tensor"], plan)
        fully_shard(model.up, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
    return model


def token_batches():
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(16, 4, 8, generator=generator, dtype=torch.float64),
            torch.randint(4, (16,), generator=generator),
        )
        for _ in range(4)
    ]


def scales_of(model, data, engine="differences"):
    return ni.optimize(model, data, F.cross_entropy, METHOD, engine=engine).scales


def parallel_scales(rank, kind):
    return scales_of(tokens(kind), token_batches())


def shared(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    return model


def with_empty_shards():
    """A slope for PReLU that only rank 0 holds, and a bias that is zero in rank 0's shard."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 9), nn.PReLU(), nn.Tanh(), nn.Linear(9, 3)).double()
    with torch.no_grad():
        model[0].bias[:5] = 0
    return model


class Bomb(nn.Module):
    """Raises at one of its calls, in its forward or its backward pass, on all ranks or on one."""

    calls, at = 0, -1  # not of the instance, whose attributes come back after every session

    def __init__(self, backward=False, only=None):
        super().__init__()
        self.backward, self.only = backward, only

    def forward(self, x):
        Bomb.calls += 1
        if Bomb.calls == Bomb.at and self.only in (None, dist.get_rank()):
            if not self.backward:
                raise ArithmeticError("the layer failed")
            x.register_hook(_fail)
        return x


def _fail(gradient):
    raise ArithmeticError("the gradient failed")


def one_step(model):
    """Output and gradients of a training step."""
    x, y = batches()[0]
    output = model(x)
    F.cross_entropy(output, y).backward()
    found = [output.tolist(), [whole(p.grad).tolist() for p in model.parameters()]]
    model.zero_grad()
    return found


def survives(at, backward=False, width=5, only=None):
    """Whether FSDP works on as before after an error, on all ranks or on one; and the error."""
    torch.manual_seed(0)
    layers = [
        nn.Linear(5, 9),
        nn.Tanh(),
        Bomb(backward, only),
        nn.Linear(9, 9),
        nn.Tanh(),
        nn.Linear(9, 3),
    ]
    model = nn.Sequential(*layers).double()
    fully_shard(model[3], mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    shared(model)
    Bomb.at = -1
    expected = one_step(model)
    Bomb.at = Bomb.calls + 1 + at
    before = {n: whole(p).clone() for n, p in model.named_parameters()}
    data = [(x[:, :width], y) for x, y in batches()]
    try:
        scales_of(model, data)
        error = None
    except (RuntimeError, ArithmeticError) as found:
        error = str(found)
    Bomb.at = -1
    unchanged = all(torch.equal(whole(p), before[n]) for n, p in model.named_parameters())
    sharded = all(hasattr(p, "full_tensor") and p.grad is None for p in model.parameters())
    return [error, unchanged, sharded, one_step(model) == expected]


def refuse_fsdp1():
    """Texts of the errors that FSDP1 meets, and whether the model works on as before."""
    found = []
    for original in (False, True):
        model = FullyShardedDataParallel(
            smooth(), device_id=torch.device("cpu"), use_orig_params=original
        )
        expected = model(batches()[0][0]).tolist()
        for call in (
            lambda model=model: ni.optimize(model, batches(), method=METHOD),
            lambda model=model: ni.optimize(model, batches(), method=METHOD, engine="differences"),
            lambda model=model: ni.kaiming_(model),
            lambda model=model: ni.lsuv_(model, batches()),
            lambda model=model: ni.gradient_stats(model, batches()[0]),
            lambda model=model: ni.optimize(smooth(), batches(), method=METHOD).apply_(model),
        ):
            try:
                call()
            except ValueError as error:
                found.append(str(error))
        found.append(model(batches()[0][0]).tolist() == expected)
    return found


def all_unusual(rank):
    model = shared(with_empty_shards())
    model(batches()[0][0])  # the root keeps what it has gathered: it has to be freed first
    return {
        "sequence": parallel_scales(rank, "sequence"),
        "empty": scales_of(model, batches()),
        "width": survives(-1, width=4),
        **{f"forward {at}": survives(at) for at in (0, 3, 60)},
        **{f"backward {at}": survives(at, backward=True) for at in (3, 60)},
        **{f"forward {at} on one": survives(at, only=1) for at in (0, 40)},
        **{f"backward {at} on one": survives(at, True, only=0) for at in (3, 40)},
        "fsdp1": refuse_fsdp1(),
    }


def not_verified(rank):
    """`nio_` with an optimizer on a sharded model: the warning, whether it scaled, `verified`."""
    model = smooth("fsdp")
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(20.0)  # it explodes
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = ni.nio_(model, batches(), optimizer=optimizer, rule=ni.CommonFactor())
    scaled = any(scale != 1 for scale in result.scales.values())
    return " ".join(str(w.message) for w in seen), scaled, result.verified
