"""Trained and loaded weights in the Hugging Face Trainer."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tests.integrations.transformers import parts as hf
from torch import nn

from benchmarks.faults.users.checks import Case, sure, told, untold
from neuroinit.integrations.transformers import InitCallback as HfCallback

QUIET = "InitCallback"


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the parameters."""
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def kept(model: nn.Module, before: dict[str, torch.Tensor]) -> None:
    """The weights are as before, but for training with a rate of 1e-9."""
    changed = [
        n for n, p in model.named_parameters() if not torch.allclose(p, before[n], atol=1e-6)
    ]
    sure(not changed, f"changed: {changed}")


def in_folder(check: Callable[[Path], None]) -> None:
    """Run a check in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder))


def hf_twice(kind: Any, times: int, folder: Path) -> None:
    """``trainer.train()`` again and again."""
    model, callback = kind(), HfCallback(hf.METHOD)
    run = hf.trainer(model, kind, folder, callback)
    run.train()
    sure(callback.result is not None, "it has not run")
    before, found = weights(model), callback.result
    with untold(QUIET):
        for _ in range(times):
            run.train()
    sure(callback.result is found, "it has run again")
    kept(model, before)


def hf_second_trainer(force: bool, folder: Path) -> None:
    """Another trainer with the same model."""
    model = hf.bert()
    hf.trainer(model, hf.bert, folder, HfCallback(hf.METHOD)).train()
    before, callback = weights(model), HfCallback(hf.METHOD, force=force)
    hf.trainer(model, hf.bert, folder, callback).train()
    sure(callback.result is None, "it has run")
    kept(model, before)


def _loaded(kind: Any, how: str, folder: Path) -> nn.Module:
    kind().save_pretrained(folder / "saved")
    found: nn.Module = type(kind()).from_pretrained(folder / "saved")
    return {
        "from_pretrained": lambda: found,
        "a deep copy of it": lambda: copy.deepcopy(found),
        "it, after `.double().float()`": lambda: found.double().float(),
        "its state dict, loaded again": lambda: (found.load_state_dict(kind().state_dict()), found)[
            1
        ],
    }[how]()


def hf_loaded(kind: Any, how: str, folder: Path) -> None:
    """A model that was loaded is left alone, with one warning."""
    model, callback = _loaded(kind, how, folder), HfCallback(hf.METHOD)
    before, run = weights(model), hf.trainer(model, kind, folder, callback)
    with told(QUIET, "force=True", times=1):
        run.train()
        run.train()
    sure(callback.result is None, "it has run")
    kept(model, before)


def hf_forced(kind: Any, folder: Path) -> None:
    """With ``force=True`` it is initialized, once."""
    model, callback = _loaded(kind, "from_pretrained", folder), HfCallback(hf.METHOD, force=True)
    run = hf.trainer(model, kind, folder, callback)
    run.train()
    found, before = callback.result, weights(model)
    run.train()
    sure(found is not None and callback.result is found, "not once")
    kept(model, before)


def hf_resumed(folder: Path) -> None:
    """``resume_from_checkpoint`` leaves the weights alone."""
    first = hf.trainer(hf.vit(), hf.vit, folder, save_strategy="steps", save_steps=2)
    first.train()
    model, callback = hf.vit(), HfCallback(hf.METHOD)
    hf.trainer(model, hf.vit, folder, callback, max_steps=6).train(resume_from_checkpoint=True)
    sure(callback.result is None, "it has run")


def hf_by_hand(folder: Path) -> None:
    """A callback that is added after training."""
    model, callback = hf.bert(), HfCallback(hf.METHOD)
    run = hf.trainer(model, hf.bert, folder)
    run.train()
    before = weights(model)
    run.add_callback(callback)
    with told(QUIET, times=1):
        run.train()
    sure(callback.result is None, "it has run")
    kept(model, before)


def hf_new_models(folder: Path) -> None:
    """One callback serves two models."""
    callback, found = HfCallback(hf.METHOD), []
    for _ in range(2):
        hf.trainer(hf.vit(), hf.vit, folder, callback).train()
        found.append(callback.result)
    sure(None not in found and found[0] is not found[1], "not for both")


def cases() -> Iterator[Case]:
    """Item 2, Hugging Face."""
    named: dict[str, Callable[[Path], None]] = {}
    for kind in (hf.vit, hf.bert, hf.gpt2):
        of = f"Hugging Face, {kind.__name__}"
        for times in (1, 2):
            named[f"{of}: trained {times + 1} times"] = partial(hf_twice, kind, times)
        named[f"{of}: `from_pretrained`"] = partial(hf_loaded, kind, "from_pretrained")
        named[f"{of}: `force=True`"] = partial(hf_forced, kind)
    for how in (
        "a deep copy of it",
        "it, after `.double().float()`",
        "its state dict, loaded again",
    ):
        named[f"Hugging Face: `from_pretrained`, {how}"] = partial(hf_loaded, hf.vit, how)
    for force in (False, True):
        second = partial(hf_second_trainer, force)
        named[f"Hugging Face: a second trainer, force = {force}"] = second
    named["Hugging Face: resumed"] = hf_resumed
    named["Hugging Face: the callback is added after training"] = hf_by_hand
    named["Hugging Face: a second model"] = hf_new_models
    for name, check in named.items():
        yield Case(2, name, partial(in_folder, check))
