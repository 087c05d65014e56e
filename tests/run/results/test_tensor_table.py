"""One row per tensor: names, groups, kinds and numbers; and the tables for pandas and JSON."""

import json
import math
import sys

import pytest

from neuroinit.run.results.tensor_table import layer_groups, tensor_kind, tensor_rows
from tests.utils.moving import ni


@pytest.fixture
def result(small_model, digits_like):
    small_model[0].bias.requires_grad_(False)
    return ni.optimize(small_model, digits_like, method=ni.NIO(steps=3, exclude=("2.bias",)))


def test_rows_follow_the_model_and_have_its_numbers(result):
    rows = {row.name: row for row in tensor_rows(result)}
    assert list(rows) == ["0.weight", "2.weight", "2.bias"]
    assert [row.kind for row in rows.values()] == ["weight", "weight", "bias"]
    assert rows["0.weight"].scale == result.scales["0.weight"]
    assert math.isnan(rows["2.bias"].scale)
    after = {layer.name: layer for layer in result.after.layers}
    assert [row.norm_after for row in rows.values()] == [layer.norm for layer in after.values()]
    assert [r.cosine_before for r in rows.values()] == [e.cosine for e in result.before.layers]


def test_what_was_not_measured_is_nan():
    drawn = ni.optimize(ni_linear(), (), loss_fn=None, method=ni.Kaiming())
    rows = tensor_rows(drawn)
    assert {row.name for row in rows} == {"weight", "bias"}
    assert all(row.redrawn and math.isnan(row.norm_before) for row in rows)


def ni_linear():
    from torch import nn

    return nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bias", "bias"),
        ("attention.in_proj_bias", "bias"),
        ("lstm.bias_hh_l0", "bias"),
        ("bias_layer.weight", "weight"),
        ("attention.in_proj_weight", "weight"),
        ("relative_bias_weight", "weight"),
        ("position", "weight"),
    ],
)
def test_kinds(name, kind):
    assert tensor_kind(name) == kind


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["weight", "bias"], ["weight", "bias"]),
        (["0.weight", "0.bias", "2.weight"], ["0", "0", "2"]),
        (["a.0.conv.weight", "a.1.conv.weight"], ["a.0", "a.1"]),
        (["a.b.0.weight", "a.b.1.weight", "a.c.weight"], ["a.b.0", "a.b.1", "a.c"]),
        ([f"a.{k}.weight" for k in range(50)], ["a"] * 50),
        ([f"{k}.weight" for k in range(50)], [f"{k}" for k in range(50)]),
        ([], []),
    ],
)
def test_groups(names, groups):
    assert layer_groups(names) == groups


def test_a_result_says_what_it_is_about(result, tmp_path):
    assert (result.about.model, result.about.parameters, result.about.batch_size) == (
        "Sequential",
        4 * 8 + 8 + 8 * 3 + 3,
        16,
    )
    result.save(tmp_path / "result.json")
    assert ni.load_result(tmp_path / "result.json").about == result.about


def test_files_of_older_versions_are_read(result, tmp_path):
    data = result.to_dict()
    del data["about"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert ni.load_result(tmp_path / "old.json").about is None


def test_save_adds_a_checksum_to_the_dict(result, tmp_path):
    result.save(tmp_path / "result.json")
    written = json.loads((tmp_path / "result.json").read_text())
    assert len(written.pop("checksum")) == 64
    assert written == result.to_dict()


def test_frames_of_tensors_and_steps(result):
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    tensors, history = result.frame(), result.frame("history")
    assert isinstance(tensors, pandas.DataFrame)
    assert list(tensors.index) == ["0.weight", "2.weight", "2.bias"]
    assert tensors.loc["0.weight", "scale"] == result.scales["0.weight"]
    assert list(history.index) == [0, 1, 2]
    assert list(history["norm"]) == [record.norm for record in result.history]
    empty = ni.Result({}, [], None, None, {}, "keep", "done")
    assert len(empty.frame()) == len(empty.frame("history")) == 0


def test_frames_name_the_choices_and_the_extra(result, monkeypatch):
    with pytest.raises(ValueError, match=r"`rows` should be .*tensors.*history"):
        result.frame("steps")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "neuroinit\[pandas\]"'):
        result.frame()
