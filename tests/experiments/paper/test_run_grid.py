"""Grids of runs: interrupted, and shared by several processes."""

import pytest

from neuroinit.experiments.paper import run_grid
from neuroinit.experiments.paper.grids import GRIDS
from neuroinit.experiments.paper.run_grid import Workspace, run_all
from neuroinit.experiments.paper.sizes import SIZES
from neuroinit.experiments.training.folder.files import Busy
from neuroinit.experiments.training.outcome import Outcome


def test_an_interrupted_grid_continues(tmp_path, monkeypatch):
    cells = list(GRIDS["figure2"](SIZES["smoke"], None))[:2]
    done, real = [], run_grid.train

    def failing(config, *rest):
        if done:
            raise KeyboardInterrupt
        done.append(config)
        return real(config, *rest)

    monkeypatch.setattr(run_grid, "train", failing)
    with pytest.raises(KeyboardInterrupt):
        run_all(cells, [0], Workspace(tmp_path))
    monkeypatch.setattr(run_grid, "train", real)
    found = run_all(cells, [0], Workspace(tmp_path))
    assert len(found) == 2
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_run_of_another_process_comes_last(tmp_path, monkeypatch):
    cells, asked = list(GRIDS["figure2"](SIZES["smoke"], None)), []

    def shared(config, *rest):
        asked.append(config.method)
        if asked.count(cells[0].config.method) < 4 and config.method == asked[0]:
            raise Busy
        return Outcome(len(asked) / 10, 1.0, 1.0, False, 1, 0.0, 1.0, 0.0, 10)

    monkeypatch.setattr(run_grid, "train", shared)
    monkeypatch.setattr(run_grid, "WAIT", 0.0)
    lines = []
    found = run_all(cells, [0], Workspace(tmp_path, report=lines.append))
    assert asked == [cell.config.method for cell in [*cells, *[cells[0]] * 3]]
    assert list(found) == [cell.position for cell in cells]
    assert [runs[0].accuracy for runs in found.values()] == [0.7, 0.2, 0.3, 0.4]
    assert lines[3] == "waiting for 1 runs of other processes"
    assert lines[4].startswith("4/4")
