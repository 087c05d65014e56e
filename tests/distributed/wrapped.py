"""Models as trainers hold them, on two ranks."""

import dataclasses

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from neuroinit.distributed.ranks import alone
from neuroinit.methods.nio.method import NIO
from tests.utils.moving import ni
from tests.utils.shared import batches, plain


def _different(model, rank):
    with torch.no_grad():
        model[0].weight.add_(rank)
    return model


class Uneven(NIO):
    """A method that looks at something that only one rank has."""

    def step(self, problem, batch, plan, engine, position):
        found = super().step(problem, batch, plan, engine, position)
        factor = 1 + 1e-6 * torch.distributed.get_rank()
        return dataclasses.replace(found, scales=found.scales * factor)


def all_wrapped(rank):
    """Scales by wrapper; DDP has sent rank 0's parameters to rank 1."""
    torch.manual_seed(0)
    parallel = DistributedDataParallel(_different(plain().double(), rank))
    before = parallel.module[0].weight
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    ni.nio_(parallel, batches(), steps=3)
    same = parallel.module[0].weight is before is optimizer.param_groups[0]["params"][0]
    x, y = batches()[0]
    F.cross_entropy(parallel(x), y).backward()
    torch.manual_seed(0)
    compiled = DistributedDataParallel(torch.compile(plain().double()))
    result = ni.optimize(compiled, batches(), method=ni.NIO(steps=3))
    try:
        ni.optimize(parallel, batches(), method=Uneven(steps=1, gamma=1.0))
        uneven = ""
    except ValueError as error:
        uneven = str(error)
    by_itself = {}
    if rank == 0:
        torch.manual_seed(0)
        with alone():
            by_itself = ni.optimize(plain().double(), batches(), method=ni.NIO(steps=3)).scales
    by_itself = [by_itself]
    torch.distributed.broadcast_object_list(by_itself)
    try:
        ni.optimize(torch.nn.Sequential(torch.nn.SyncBatchNorm(5), plain()), batches())
    except ValueError as error:
        waiting = str(error)
    return {
        "alone": by_itself[0],
        "waiting": waiting,
        "weight": parallel.module[0].weight.norm().item(),
        "same": same,
        "compiled": result.scales,
        "uneven": uneven,
    }
