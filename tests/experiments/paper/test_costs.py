"""The cost of a method."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from neuroinit.experiments.paper import costs
from neuroinit.experiments.paper.costs import Cost, cost
from neuroinit.experiments.paper.run_grid import Workspace
from neuroinit.experiments.paper.sizes import SIZES


def test_the_whole_initialization_in_training_steps():
    assert Cost(seconds=3.0, megabytes=1.0, training_seconds=0.5, steps=10).training_steps == 60


def test_costs_download_their_data(tmp_path, monkeypatch):
    def load(name, root, download, *rest):
        raise FileNotFoundError(f"{name} in {root}, download {download}")

    monkeypatch.setattr(costs, "load", load)
    config = replace(SIZES["small"].cifar, method="nio:steps=1")
    with pytest.raises(FileNotFoundError, match="cifar10 in here, download True"):
        costs.measure(config, Path("here"), True, 1, 1)


def test_a_rule_has_no_steps_to_measure():
    with pytest.raises(ValueError, match="`kaiming` takes no steps"):
        costs.measure(SIZES["smoke"].cifar, Path("here"), False, 1, 1)


def _killed(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_measurement_that_is_killed_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "measure", _killed)
    config = replace(SIZES["smoke"].cifar, method="nio:steps=1")
    with pytest.raises(MemoryError, match=r"was killed.*--init-batch-size"):
        cost(config, Workspace(tmp_path))
    assert list((tmp_path / "costs").iterdir()) == []
