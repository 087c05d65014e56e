"""The batches, the loss and the optimizer of the Hugging Face Trainer that calls the callback."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType

from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import Trainer

Inputs = dict[str, Tensor]  # a trainer that overrides `compute_loss` may take other batches
IGNORED = -100  # the label of a token that the loss ignores


def calling_trainer() -> Trainer | None:
    """The trainer that is calling a callback, or ``None``.

    A trainer passes the model and the data to a callback, but not itself. The loss and the other
    callbacks are attributes of the trainer, so it is searched in the call stack.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer):
            return found
        frame = frame.f_back
    return None


class TrainerBatches:
    """The batches of a loader, as they reach the trainer's ``compute_loss``."""

    def __init__(self, trainer: Trainer | None, loader: Iterable[Inputs]) -> None:
        self.trainer, self.loader = trainer, loader

    def __iter__(self) -> Iterator[Inputs]:
        for batch in self.loader:
            yield batch if self.trainer is None else self.trainer._prepare_inputs(batch)


class TrainerLoss:
    """``loss(model, batch)`` by the trainer's ``compute_loss``, label smoothing included."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def __call__(self, model: nn.Module, batch: Inputs) -> Tensor:
        """The mean loss of a batch."""
        inputs = copy.copy(batch)  # `compute_loss` may remove the labels
        items = self._count(inputs)
        loss = self.trainer.compute_loss(model, inputs, num_items_in_batch=items)
        if not isinstance(loss, Tensor):
            raise TypeError(
                f"`{type(self.trainer).__name__}.compute_loss` should return a tensor: it is what "
                f"the initialization is optimized for. Found a `{type(loss).__name__}`."
            )
        return loss

    def _count(self, inputs: Inputs) -> Tensor | None:
        """The number of labels, if training passes it to the loss; ``None`` otherwise.

        A loss that divides its sum by this number is then the mean of the batch. If the trainer
        counts the labels of all processes, it multiplies the loss by the number of processes
        afterwards, so the number of labels is multiplied, too.
        """
        trainer = self.trainer
        labels = inputs.get("labels") if isinstance(inputs, Mapping) else None
        wanted = trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None
        if not wanted or not isinstance(labels, Tensor):
            return None
        if getattr(trainer, "_loss_shifts_labels", False):
            labels = labels[..., 1:]
        shared = getattr(trainer.args, "average_tokens_across_devices", False)
        return labels.ne(IGNORED).sum() * (trainer.accelerator.num_processes if shared else 1)


def own_training_step(trainer: Trainer) -> bool:
    """Whether a trainer overrides ``training_step``, which may use another loss."""
    return type(trainer).training_step is not Trainer.training_step


def torch_optimizer(optimizer: object) -> Optimizer | None:
    """The torch optimizer inside of Accelerate's wrapper; ``None`` if there is none."""
    found = getattr(optimizer, "optimizer", optimizer)
    return found if isinstance(found, Optimizer) else None


def stepped(optimizer: Optimizer | None) -> frozenset[int]:
    """The ids of the parameters that an optimizer has changed.

    A state whose ``step`` is 0 does not count: some optimizers have one before their first step.
    """
    states = {} if optimizer is None else optimizer.state
    changed = (p for p, state in states.items() if state and float(state.get("step", 1)) > 0)
    return frozenset(id(p) for p in changed)
