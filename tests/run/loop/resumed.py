"""A run whose process is killed: ``python -m tests.run.loop.resumed folder step``."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.utils.moving import ni
from tests.utils.shared import plain

METHODS = {
    "nio": ni.NIO(tolerance=0.0, steps=9, reinit_zeros=0.1),
    "reference": ni.NIO.reference(steps=9),
    "gradinit": ni.GradInit(steps=9),
    "metainit": ni.MetaInit(steps=9),
}


def loader():
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(80, 5, generator=generator), torch.randint(3, (80,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)


def result(name, checkpoint=None, on_step=None, every=2):
    """The same run whenever it is called: the seed is fixed, the loader shuffles."""
    torch.manual_seed(0)
    model = plain()
    torch.nn.init.zeros_(model[2].bias)
    torch.manual_seed(4)
    found = ni.optimize(
        model,
        loader(),
        F.cross_entropy,
        METHODS[name],
        checkpoint=checkpoint,
        checkpoint_every=every,
        on_step=on_step,
    )
    records = [{**dict(record), "seconds": 0.0} for record in found.history]
    after = None if found.after is None else found.after.cosine
    return json.loads(json.dumps([found.scales, records, after, found.engine, found.settings]))


def start_gloo():
    """After a restart by torchrun, gloo may find the killed rank's address in the same store."""
    store, rank, world = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)


def main(folder, kill_at):
    """Kill this process, or rank 1 of several, before the given step is saved, the first time."""
    folder, rank = Path(folder), int(os.environ.get("RANK", 0))
    if "RANK" in os.environ:
        start_gloo()
    several = "RANK" in os.environ
    mark = folder / "killed"

    def on_step(record):
        if record.step == kill_at and not mark.exists() and rank == int(several):
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    found = result("nio", folder / "run.json", on_step)
    (folder / f"found{rank}.json").write_text(json.dumps(found))
    if several:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
