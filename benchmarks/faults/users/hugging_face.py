"""Hugging Face's Trainer: its loss is the one that is used, and its loggers get the records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from tests.integrations.transformers.parts import METHOD, Data, gpt2, trainer, vit
from torch import Tensor, nn

import neuroinit as ni
from benchmarks.faults.users.checks import Case, near, refused, sure, told
from neuroinit.integrations.transformers import InitCallback


class Recorder(transformers.TrainerCallback):
    """What TensorBoard and W&B would get."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, Any]]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """Keep the record."""
        self.logged.append((state.global_step, dict(logs)))


def run(
    folder: Path,
    callback: InitCallback,
    kind: Any = vit,
    own: type[transformers.Trainer] = transformers.Trainer,
    others: tuple[Any, ...] = (),
    extra: dict[str, Any] | None = None,
    **options: Any,
) -> transformers.Trainer:
    """A short training whose model does not depend on the callback."""
    torch.manual_seed(0)
    model = kind()
    arguments = trainer(model, kind, folder, **options).args
    callbacks = [callback, *others]
    made = own(
        model=model, args=arguments, train_dataset=Data(kind), callbacks=callbacks, **(extra or {})
    )
    made.train()
    return made


def logits(model: nn.Module, batch: Any) -> Tensor:
    """Of a vision transformer."""
    return model(pixel_values=batch["pixel_values"]).logits  # type: ignore[no-any-return]


def smooth(amount: float, model: nn.Module, batch: Any) -> Tensor:
    """Cross-entropy with label smoothing."""
    return F.cross_entropy(logits(model, batch), batch["labels"], label_smoothing=amount)


def squared(model: nn.Module, batch: Any) -> Tensor:
    """Squared distance from the one-hot label."""
    return (logits(model, batch) - F.one_hot(batch["labels"], 3)).square().mean()


def squared_func(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """The same as a ``compute_loss_func``, which divides by the number of labels."""
    found = (outputs["logits"] - F.one_hot(labels, 3)).square().sum() / 3
    return found / num_items_in_batch  # type: ignore[no-any-return]


class Squared(transformers.Trainer):
    """A trainer with a loss of its own."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any
    ) -> Any:  # type: ignore[override]
        """The squared distance."""
        labels = inputs.pop("labels")
        output = model(**inputs)
        loss = (output.logits - F.one_hot(labels, 3)).square().mean()
        return (loss, output) if return_outputs else loss


class NoTensor(transformers.Trainer):
    """A trainer whose loss is no tensor."""

    def compute_loss(self, *args: Any, **rest: Any) -> Any:
        """A number."""
        return 1.0


class Stepping(transformers.Trainer):
    """A trainer with a training step of its own."""

    def training_step(self, *args: Any, **rest: Any) -> Tensor:
        """Twice the loss."""
        return 2 * super().training_step(*args, **rest)


def same(loss: Any, method: ni.Initialization, options: dict[str, Any], folder: Path) -> None:
    """The trainer's loss gives what the same loss by hand gives."""
    by_hand, found = InitCallback(method, compute_loss=loss), InitCallback(method)
    run(folder, by_hand)
    run(folder, found, **options)
    assert by_hand.result is not None
    assert found.result is not None
    near(found.result.scales, by_hand.result.scales, 1e-5)
    near(found.result.before.loss, by_hand.result.before.loss, 1e-5)  # type: ignore[union-attr]


def no_tensor(folder: Path) -> None:
    """A loss that is no tensor is refused."""
    with refused(TypeError, "`NoTensor.compute_loss` should return a tensor"):
        run(folder, InitCallback(METHOD), own=NoTensor)


def stepping(folder: Path) -> None:
    """A training step of one's own may have another loss: a warning."""
    with told("overrides `training_step`", times=1):
        run(folder, InitCallback(METHOD), own=Stepping)


def logged(kind: Any, method: ni.Initialization, folder: Path) -> None:
    """Every record reaches ``on_log`` with its step, and the state keeps its own step."""
    recorder, callback = Recorder(), InitCallback(method)
    made = run(folder, callback, kind, others=(recorder,))
    assert callback.result is not None
    found = [(s, logs) for s, logs in recorder.logged if any("neuroinit" in key for key in logs)]
    norms = [logs["neuroinit/norm"] for _, logs in found if "neuroinit/norm" in logs]
    near(norms, [record.norm for record in callback.result.history], 1e-12)
    history = [row for row in made.state.log_history if "neuroinit/norm" in row]
    sure(len(history) == len(callback.result.history), "the state has other records")
    sure(made.state.global_step == 4, "the trainer's own step has changed")


def cases() -> Iterator[Case]:
    """Item 12."""
    paper = ni.NIO.paper(steps=2, lr=0.01)
    named: dict[str, Any] = {}
    for name, method in (("NIO", METHOD), ("NIO.paper", paper), ("GradInit", ni.GradInit(steps=2))):
        for amount in (0.1, 0.4):
            named[f"label_smoothing_factor={amount}: {name}"] = partial(
                same, partial(smooth, amount), method, {"label_smoothing_factor": amount}
            )
        named[f"`compute_loss_func`: {name}"] = partial(
            same, squared, method, {"extra": {"compute_loss_func": squared_func}}
        )
        named[f"an overridden `compute_loss`: {name}"] = partial(
            same, squared, method, {"own": Squared}
        )
        for kind in (vit, gpt2):
            named[f"`on_log`, {kind.__name__}: {name}"] = partial(logged, kind, method)
    named["a loss that is no tensor"] = no_tensor
    named["an overridden `training_step`"] = stepping
    for name, check in named.items():
        yield Case(12, name, partial(_folder, check))


def _folder(check: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder))
