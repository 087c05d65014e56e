"""Files of a run: the lock of its folder, JSON and tensors."""

import json
import math

import pytest
import torch

from neuroinit.experiments.training.folder.files import (
    Busy,
    locked,
    read_tensors,
    without_nan,
    write_json,
    write_tensors,
)

pytest.importorskip("safetensors", reason='needs pip install "neuroinit[experiments]"')


def test_a_folder_is_locked_once(tmp_path):
    with locked(tmp_path):
        with pytest.raises(Busy, match="Another process works in"), locked(tmp_path):
            pass
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    with locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_the_lock_ends_with_an_error(tmp_path):
    with pytest.raises(KeyError, match="on purpose"), locked(tmp_path):
        raise KeyError("on purpose")
    assert not list(tmp_path.iterdir())


def test_numbers_that_are_not_finite_are_null():
    record = {"loss": math.nan, "norm": math.inf, "step": 3, "name": "nan", "rate": 0.5}
    expected = {"loss": None, "norm": None, "step": 3, "name": "nan", "rate": 0.5}
    assert without_nan(record) == expected
    assert json.loads(json.dumps(without_nan(record), allow_nan=False)) == expected


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"steps": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(path, {"steps": object()})
    assert json.loads(path.read_text()) == {"steps": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_tensors_that_share_memory_come_back(tmp_path):
    whole = torch.arange(6.0)
    tensors = {"whole": whole, "part": whole[2:4], "turned": whole.view(2, 3).T}
    write_tensors(tmp_path / "tensors", tensors, {"steps": 2})
    found, notes = read_tensors(tmp_path / "tensors")
    assert notes == {"steps": 2}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
