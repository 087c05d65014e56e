"""The fault injector: what holds is counted as promised, and what is broken is seen."""

from collections import Counter

from torch import nn

from benchmarks.faults import files, single
from benchmarks.faults.record import Row, table
from benchmarks.faults.users import attempts, checks, custom_functions, record
from neuroinit.common import sealed_json
from neuroinit.gradients.passes import graph_checks
from neuroinit.model import borrowing


def test_promises_that_hold():
    assert files.results(4, 0) == Counter({single.GOOD: 4})
    assert single.exceptions("the loss", 2, 0) == Counter({single.GOOD: 2})
    assert single.interrupts("gradient_stats", 2, 0) == Counter({single.GOOD: 2})


def test_a_model_that_is_not_restored_is_seen(monkeypatch):
    monkeypatch.setattr(borrowing._Saved, "restore", lambda saved: None)
    (outcome,) = single.exceptions("a layer", 1, 3)
    assert outcome.startswith("changed: ")


def test_damage_that_is_not_noticed_is_seen(monkeypatch):
    monkeypatch.setattr(sealed_json, "_checksum", lambda content: content.get("none"))
    assert files.results(60, 0)["other results"] > 0


def test_table():
    rows = [Row("fault", "here", 3, 2), Row("other", "there", 1, 1)]
    assert table(rows).splitlines()[2:] == [
        "| fault | here | 3 | 2 |",
        "| other | there | 1 | 1 |",
        "| all | | 4 | 3 |",
    ]


def test_what_a_new_user_tries_is_judged(monkeypatch):
    case = next(custom_functions.cases())
    assert attempts.end_of(case) == single.GOOD
    monkeypatch.setattr(graph_checks, "TOLERANCE", 1e9)
    assert "0 warnings with" in attempts.end_of(case)


def test_a_hook_that_is_left_behind_is_seen():
    model = nn.Linear(2, 2)

    def leave():
        with checks.unchanged(model):
            model.register_forward_hook(lambda *a: None)

    assert attempts.end_of(checks.Case(1, "", leave)) == "changed: hooks"


def test_table_of_users(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "PATH", tmp_path / "users.jsonl")
    record.add(3, "twice", "changed: parameters")
    record.add(3, "twin", single.GOOD)
    record.add(3, "drawn", "no error")
    record.add(3, "drawn", single.GOOD)  # mended meanwhile
    rows = record.table().splitlines()
    assert f"| {record.ITEMS[3]} | 3 | 2 |" in rows
    assert rows[-1] == "| all | 3 | 2 |"
