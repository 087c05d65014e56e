"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """The result of a training run.

    Args:
        accuracy: Share of the test images that are classified correctly at the end.
        train_loss: Mean training loss of the last epoch.
        area: Mean training loss of all steps (the area under the loss curve, divided by its
            length).
        diverged: Whether a loss was not finite. The run ended there, and the losses are ``None``.
        steps: Number of steps.
        init_seconds: Time of the initialization method.
        train_seconds: Time of all steps and tests.
        data_share: Share of ``train_seconds`` spent waiting for data.
        classes: Number of classes.
    """

    accuracy: float
    train_loss: float | None
    area: float | None
    diverged: bool
    steps: int
    init_seconds: float
    train_seconds: float
    data_share: float
    classes: int

    @property
    def failed(self) -> bool:
        """Whether Table 5 counts the run as "fail".

        A run fails if a loss was not finite or the test accuracy is below twice that of chance.
        With two classes, the limit is 75% instead: halfway from chance to 100%.

        Example:
            >>> Outcome(0.7, 0.5, 0.5, False, 10, 0.0, 1.0, 0.0, classes=2).failed
            True
        """
        chance = 1 / self.classes
        return self.diverged or self.accuracy < min(2 * chance, (1 + chance) / 2)
