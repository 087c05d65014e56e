"""Real processes that meet by gloo, and what became of each."""

import json
import multiprocessing
import os
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist


def run(world, function, folder, *arguments, seconds=90):
    """``function(rank, *arguments)`` on every rank; what each returned, or the error it raised.

    A rank that is killed, or is still there after so many seconds, has ``None``.
    """
    context = multiprocessing.get_context("spawn")
    folder = Path(folder)
    target = (function, world, str(folder), arguments)
    ranks = [context.Process(target=_rank, args=(rank, *target)) for rank in range(world)]
    for process in ranks:
        process.start()
    limit = time.monotonic() + seconds
    for process in ranks:
        process.join(max(0.0, limit - time.monotonic()))
    for process in ranks:
        if process.is_alive():
            process.kill()
            process.join()
    files = [folder / f"rank{rank}.json" for rank in range(world)]
    return [json.loads(f.read_text()) if f.exists() else None for f in files]


def _rank(rank, function, world, folder, arguments):
    torch.set_num_threads(1)
    store = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        found = {"value": function(rank, *arguments)}
    except BaseException as error:
        found = {
            "error": type(error).__name__,
            "text": str(error),
            "notes": getattr(error, "__notes__", []),
            "trace": traceback.format_exc(),
        }
    temporary = Path(folder, f"rank{rank}.tmp")
    temporary.write_text(json.dumps(found))
    os.replace(temporary, Path(folder, f"rank{rank}.json"))
    dist.destroy_process_group()
