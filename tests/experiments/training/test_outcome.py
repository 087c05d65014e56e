"""The rule by which a run fails."""

import pytest

from neuroinit.experiments.training.outcome import Outcome


def outcome(accuracy, diverged=False, classes=10):
    loss = None if diverged else 1.0
    return Outcome(accuracy, loss, loss, diverged, 1, 0.0, 1.0, 0.0, classes)


@pytest.mark.parametrize(("classes", "least"), [(2, 0.75), (3, 2 / 3), (4, 0.5), (1000, 0.002)])
def test_the_limit_is_twice_chance_or_halfway_to_all(classes, least):
    assert outcome(least - 1e-4, classes=classes).failed
    assert not outcome(least + 1e-4, classes=classes).failed


def test_a_run_that_diverged_failed():
    assert outcome(0.9, diverged=True).failed
