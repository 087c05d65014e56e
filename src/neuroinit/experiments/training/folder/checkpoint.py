"""Checkpoints of a run: model, optimizer and random state in one safetensors file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from neuroinit.common.process.random_state import random_state, set_random_state
from neuroinit.common.sealed_json import of_kind
from neuroinit.experiments.training.folder.files import read_tensors, write_tensors


def save(path: Path, model: nn.Module, optimizer: Optimizer, notes: dict[str, float]) -> None:
    """Write a checkpoint.

    Args:
        path: The file.
        model: Its parameters and buffers are saved.
        optimizer: The tensors of its state are saved; its settings are not.
        notes: Numbers that :func:`restore` returns.
    """
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{k}": v for k, v in values.items() if v is not None}
    write_tensors(path, tensors, {"notes": notes, "random": random_state()})


def restore(path: Path, model: nn.Module, optimizer: Optimizer) -> dict[str, float]:
    """Load a checkpoint into a model, an optimizer and the global random generators.

    Returns:
        The notes.
    """
    tensors, stored = read_tensors(path)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        parts[part][key] = tensor
    model.load_state_dict(parts["model"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimizer"].items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    set_random_state(of_kind(str, stored["random"]))
    return of_kind(dict, stored["notes"])
