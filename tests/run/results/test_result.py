"""Saving, loading and reading results."""

import json
import random

import pytest
import torch

from tests.utils.moving import ni


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
        assert a.agreement == b.agreement
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
    with pytest.raises(TypeError, match="object is not JSON serializable"):
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


def test_a_damaged_file_is_one_error_with_the_path_or_the_same_result(result, tmp_path):
    path, generator = tmp_path / "result.json", random.Random(0)
    result.save(path)
    content = path.read_bytes()
    for _ in range(100):
        changed, place = bytearray(content), generator.randrange(len(content))
        if generator.random() < 0.5:
            changed[place] ^= 1 << generator.randrange(8)
        else:
            del changed[place : place + generator.randint(1, 40)]
        path.write_bytes(changed)
        assert str(path) in error_of(path) or ni.load_result(path).to_dict() == result.to_dict()


def error_of(path):
    try:
        ni.load_result(path)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scales", {"0.weight": "2"}, "the scale of `0.weight` should be a finite number"),
        ("scales", {"0.weight": True}, "the scale of `0.weight` should be a finite number"),
        ("scales", [], "`scales` should be a dict"),
        ("drawn", {"0.weight": {"kind": "odd", "size": 1.0}}, "kind = 'odd'"),
        ("drawn", {"0.weight": {"kind": "normal", "size": "x"}}, "size = 'x'"),
        ("digests", {"0.weight": [1]}, "should be two integers"),
        ("history", [{"step": "x"}], "is not a complete result"),
        ("before", {"loss": 0.0}, "is not a complete result"),
        ("held_out", 1, "`held_out` should be a bool"),
    ],
)
def test_wrong_types_are_refused_before_they_are_applied(result, tmp_path, key, value, message):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**result.to_dict(), key: value}))
    with pytest.raises(ValueError, match=message):
        ni.load_result(path)


def test_scales_that_are_not_finite_are_refused(result, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result.to_dict()).replace('"scales": {', '"scales": {"x": 1e999, '))
    with pytest.raises(ValueError, match="the scale of `x` should be a finite number, found inf"):
        ni.load_result(path)
