"""Lightning: trained and loaded weights; options of the callbacks, and small batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tests.integrations.lightning import parts as pl
from tests.integrations.transformers import parts as hf
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.faults.users.checks import Case, refused, sure, told
from benchmarks.faults.users.trained_weights import QUIET, in_folder, kept, weights
from neuroinit.integrations.lightning import InitCallback as PlCallback
from neuroinit.integrations.transformers import InitCallback as HfCallback


def _checkpoint(folder: Path) -> Path:
    run = pl.trainer()
    run.fit(pl.Module(), pl.loader())
    run.save_checkpoint(folder / "trained.ckpt")
    return folder / "trained.ckpt"


def pl_loaded(how: str, folder: Path) -> None:
    """A module that was loaded is left alone, with one warning."""
    path = _checkpoint(folder)
    module = pl.Module()
    if how == "load_from_checkpoint":
        module = pl.Module.load_from_checkpoint(path)
    elif how == "load_state_dict":
        module.load_state_dict(torch.load(path)["state_dict"])
    elif how == "test with ckpt_path":
        data = DataLoader(pl.loader().dataset, batch_size=16)
        pl.trainer().test(module, data, ckpt_path=path, verbose=False)
    before, callback = weights(module), PlCallback(pl.METHOD)
    with told(QUIET, "force=True", times=1):
        pl.trainer(callback).fit(module, pl.loader())
        pl.trainer(callback).fit(module, pl.loader())
    sure(callback.result is None, "it has run")
    kept(module, before)


def pl_forced(folder: Path) -> None:
    """With ``force=True`` it is initialized, once."""
    module = pl.Module.load_from_checkpoint(_checkpoint(folder))
    callback = PlCallback(pl.METHOD, force=True)
    pl.trainer(callback).fit(module, pl.loader())
    found, before = callback.result, weights(module)
    pl.trainer(callback).fit(module, pl.loader())
    sure(found is not None and callback.result is found, "not once")
    kept(module, before)


def pl_resumed(folder: Path) -> None:
    """``fit(ckpt_path=)`` leaves the weights alone."""
    path, callback, module = _checkpoint(folder), PlCallback(pl.METHOD), pl.Module()
    pl.trainer(callback, max_epochs=2).fit(module, pl.loader(), ckpt_path=path)
    sure(callback.result is None, "it has run")


def pl_reused(same_trainer: bool, folder: Path) -> None:
    """One callback runs for a second module, and once for each."""
    callback, first, second = PlCallback(pl.METHOD), pl.Module(), pl.Module()
    run = pl.trainer(callback)
    run.fit(first, pl.loader())
    found, before = callback.result, weights(first)
    sure(found is not None, "it has not run")
    (run if same_trainer else pl.trainer(callback)).fit(second, pl.loader())
    sure(same_trainer or callback.result is not found, "it has not run for the second module")
    kept(first, before)


def pl_twice(force: bool, folder: Path) -> None:
    """A second ``fit``."""
    module, callback = pl.Module(), PlCallback(pl.METHOD, force=force)
    pl.trainer(callback).fit(module, pl.loader())
    before, found = weights(module), callback.result
    pl.trainer(callback).fit(module, pl.loader())
    sure(callback.result is found, "it has run again")
    kept(module, before)


def hf_small(size: int, folder: Path) -> None:
    """A Trainer with batches of few samples goes on."""
    callback = HfCallback(steps=2)
    run = hf.trainer(hf.vit(), hf.vit, folder, callback, per_device_train_batch_size=size)
    run.train()
    sure(callback.result is not None, "it has not run")
    sure(run.state.global_step == 4, "training has not gone on")


def pl_small(size: int, folder: Path) -> None:
    """A Lightning Trainer with batches of few samples goes on."""
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
    callback = PlCallback(steps=2)
    run = pl.trainer(callback)
    run.fit(pl.Module(), DataLoader(data, batch_size=size))
    sure(callback.result is not None and run.global_step > 0, "it has not run")


def options(callback: Any, **given: Any) -> None:
    """Fields of NIO are options of the callbacks."""
    made = callback(**given)
    for name, value in given.items():
        if name != "engine":
            sure(getattr(made.method, name) == value, f"{name} is not {value}")


def wrong_option(callback: Any, given: dict[str, Any], *words: str) -> None:
    """An option that does not exist, or has a wrong value: an error that names it."""
    with refused((TypeError, ValueError), *words):  # type: ignore[arg-type]
        callback(**given)


OPTIONS: tuple[dict[str, Any], ...] = (
    {"steps": 7},
    {"gamma": 2.0, "sub_batches": 4},
    {"lr": 0.2, "engine": "stream"},
)
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"step": 7}, "`step`"),
    ({"steps": -1}, "`steps`"),
    ({"method": hf.METHOD, "steps": 3}, "steps"),
)


def cases() -> Iterator[Case]:
    """Item 2, Lightning; item 7, callbacks."""
    named: dict[str, Callable[[Path], None]] = {}
    for force in (False, True):
        named[f"Lightning: a second fit, force = {force}"] = partial(pl_twice, force)
        named[f"Lightning: a second module, same trainer = {force}"] = partial(pl_reused, force)
    for how in ("load_from_checkpoint", "load_state_dict", "test with ckpt_path"):
        named[f"Lightning: `{how}`"] = partial(pl_loaded, how)
    named["Lightning: `load_from_checkpoint`, `force=True`"] = pl_forced
    named["Lightning: `fit(ckpt_path=)`"] = pl_resumed
    for name, check in named.items():
        yield Case(2, name, partial(in_folder, check))
    for size in (1, 3, 7):
        for library, small in (("Hugging Face", hf_small), ("Lightning", pl_small)):
            attempt = partial(small, size)
            yield Case(7, f"{library}: batches of {size}", partial(in_folder, attempt))
    for library, callback in (("Hugging Face", HfCallback), ("Lightning", PlCallback)):
        for given in OPTIONS:
            yield Case(7, f"{library}: options {given}", partial(options, callback, **given))
        for wrong, word in WRONG:
            refusal = partial(wrong_option, callback, wrong, word)
            yield Case(7, f"{library}: wrong option {sorted(wrong)}", refusal)
