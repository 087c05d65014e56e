"""Saving, loading and reading results."""

import json

import pytest
import torch

import neuroinit as ni


@pytest.fixture
def result(small_model, digits_like):
    return ni.optimize(small_model, digits_like, method=ni.NIO(steps=3))


def test_round_trip(result, tmp_path):
    path = tmp_path / "result.json"
    result.save(path)
    loaded = ni.load_result(path)
    for name in ("scales", "history", "settings", "engine", "stopped", "held_out", "versions"):
        assert getattr(loaded, name) == getattr(result, name), name
    for a, b in ((loaded.before, result.before), (loaded.after, result.after)):
        assert torch.equal(a.norms, b.norms)
        assert torch.equal(a.cosines, b.cosines)
        assert a.layers == b.layers
    assert repr(loaded) == repr(result)


def test_the_file_is_strict_json(result, tmp_path):
    result.before.layers[0] = ni.LayerStats("dead", float("nan"), 0.0, float("inf"))
    path = tmp_path / "result.json"
    result.save(path)

    def refuse(constant):
        raise AssertionError(constant)

    json.loads(path.read_text(), parse_constant=refuse)
    assert ni.load_result(path).before.layers[0].norm_ratio == float("inf")


def test_a_failed_save_leaves_the_old_file_and_no_other(result, tmp_path):
    path = tmp_path / "result.json"
    result.save(path)
    old = path.read_text()
    result.settings["broken"] = object()
    with pytest.raises(TypeError):
        result.save(path)
    assert path.read_text() == old
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}', "\x80"])
def test_files_that_are_no_results(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"other.json` is no"):
        ni.load_result(path)


def test_repr_reads_at_a_glance(result):
    lines = repr(result).splitlines()
    assert lines[0].startswith("NIO: 3 steps in ")
    assert "before" in lines[1]
    assert any(line.strip().startswith("GradCosine") for line in lines)
    assert any("bound gamma" in line for line in lines)
    assert max(map(len, lines)) <= 100
