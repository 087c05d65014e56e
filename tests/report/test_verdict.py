"""What the page concludes from the numbers of a result."""

import dataclasses

import pytest
import torch

import neuroinit as ni
from neuroinit.methods.nio.common_factor import NO_FACTOR, WORKS
from neuroinit.report import remarks, words
from neuroinit.report.verdict import bound, judge, vanished
from tests.report.conftest import make_result


def stats(norm, cosine=0.3, layers=((1.0, "a.weight"), (0.5, "a.bias"))):
    """Statistics of two sub-batches; ``layers`` has shares of the norm, and names."""
    cosines = torch.tensor([[1.0, cosine], [cosine, 1.0]])
    found = [ni.LayerStats(name, cosine, share * norm, 1.0) for share, name in layers]
    return ni.GradientStats(2.0, torch.tensor([norm, norm]), cosines, found, "sub-batch")


def result(before, after, method="NIO", scales=None, **changes):
    settings = {"method": method, "gamma": 2.0}
    scales = {"a.weight": 0.5, "a.bias": 0.01} if scales is None else scales
    record = ni.StepRecord(0, 2.0, 0.3, 1.0, 1.0, 1.0, False, 0.1)
    return ni.Result(scales, [record], before, after, settings, "keep", "done", **changes)


VANISHING = ((1.0, "c.weight"), (1e-5, "a.weight"), (1e-4, "b.weight"))


@pytest.mark.parametrize(
    ("before", "after", "status", "problem"),
    [
        (stats(1e6), stats(2.0), "repaired", "exploding"),
        (stats(10.1), stats(2.0), "repaired", "exploding"),
        (stats(9.9), stats(2.0), "usable", "no problem"),
        (stats(0.41), stats(2.0), "usable", "no problem"),
        (stats(0.39), stats(2.0), "repaired", "small"),
        (stats(2.0, layers=VANISHING), stats(2.0), "repaired", "vanishing"),
        (stats(1e6), stats(1e3), "unsolved", "exploding"),
        (stats(2.0), stats(2.0, layers=VANISHING), "unsolved", "no problem"),
        (stats(2.0), None, "unsolved", "no problem"),
        (None, stats(2.0), "repaired", "unusable"),
        (None, stats(1e6), "unsolved", "unusable"),
        (None, None, "open", "not measured"),
    ],
)
def test_status(before, after, status, problem):
    found = judge(result(before, after))
    assert (found.status, found.before) == (status, problem)


def test_the_norm_of_other_methods_is_not_judged():
    """GradInit's gamma is a bound of another norm."""
    other = result(stats(1e6), stats(2.0), method="GradInit")
    assert bound(other) is None
    assert judge(other).status == "open"


def test_tensors_without_any_gradient_do_not_count_as_vanished():
    some = stats(1.0, layers=((1.0, "a.weight"), (0.0, "unused.weight"), (1e-6, "a.bias")))
    assert vanished(some) == []


@pytest.mark.parametrize(("factor", "problem"), [(5.0, "exploding"), (0.3, "dead"), (2, None)])
def test_real_networks(factor, problem):
    found = judge(make_result(factor=factor, layers=8))
    assert found.status == ("repaired" if problem else "usable")
    assert found.before == (problem or "no problem")


def test_the_default_rule_is_not_second_guessed():
    """A network that works is left alone, even if its gradients are larger than its loss."""
    works = ni.Result(
        {"a.weight": 1.0},
        [ni.StepRecord(0, 2.0, 0.3, 30.0, 30.0, 30.0, False, 0.1)],
        stats(30.0),
        stats(30.0),
        {"method": "NIO", "gamma": "auto", "unit": 2.3},
        "none",
        WORKS,
    )
    assert judge(works).status == "usable"
    assert judge(dataclasses.replace(works, stopped=NO_FACTOR)).status == "unsolved"


@pytest.mark.parametrize(
    ("verified", "after", "status"),
    [
        ("applied whole: loss 1 after 12 training steps", stats(2.0), "repaired"),
        ("applied half: loss 1 after 12 training steps", None, "repaired"),
        ("not applied: no better", stats(1e6), "left"),
    ],
)
def test_short_trainings_have_the_last_word(verified, after, status):
    case = result(stats(1e6), after, verified=verified)
    assert judge(case).status == status
    assert verified[1:] in words.details(case, judge(case))[2][1]  # the reason is shown


@pytest.mark.parametrize(("verified", "found"), [("", False), ("applied layer by layer", True)])
def test_a_confirmed_change_is_not_called_no_problem(verified, found):
    case = result(stats(2.0), stats(2.0), verified=verified)
    verdict = judge(case)
    assert verdict.status == "usable"
    assert (words.label(case, verdict) != words.LABELS["usable"]) == found


def situations():
    """Results with all combinations of what words may have to say."""
    return [
        result(before, after, method, scales, drawn=drawn, blocked=blocked, verified=verified)
        for before in (stats(1e6, 0.9), stats(1.0, layers=VANISHING), stats(0.1), stats(2.0), None)
        for after in (stats(2.0), stats(1e6), None)
        for method in ("NIO", "LSUV")
        for scales in ({}, {"a.weight": 1.0}, None)
        for drawn in ({}, {"a.weight": None})
        for blocked in ([], ["a.weight"])
        for verified in ("", "applied whole: better", "not applied: no better")
    ]


def test_every_situation_has_a_headline_and_three_details():
    for case in situations():
        verdict = judge(case)
        assert words.headline(case, verdict)
        details = words.details(case, verdict)
        assert len(details) == 3
        assert all(text for _, text in details), details
        assert "nan" not in str(details), details
        assert words.LABELS[verdict.status]


def test_a_falling_cosine_is_explained_where_it_is_shown():
    falls = result(stats(1e6, cosine=0.9), stats(2.0, cosine=0.2))
    rises = result(stats(1e6, cosine=0.2), stats(2.0, cosine=0.9))
    same = result(stats(2.0, cosine=0.2), stats(2.0, cosine=0.2))
    assert remarks.cosine_pointer(falls)
    assert not remarks.cosine_pointer(rises)
    assert not remarks.cosine_pointer(same)
    still = result(stats(1e6, cosine=0.9), stats(1e3, cosine=0.2))  # explodes after the run, too
    notes = [remarks.cosine_note(case, judge(case)) for case in (falls, rises, same, still)]
    assert len(set(notes)) == 4
    assert remarks.cosine_note(dataclasses.replace(falls, before=None), judge(falls)) == ""


def test_weights_and_biases_are_counted_apart():
    scales = {"a.weight": 2.0, "b.weight": 0.5, "c.weight": 1.0, "a.bias": 0.01}
    text = words.changes(result(None, None, scales=scales))
    weights, biases = text.split(". ", 1)
    counts = [int(word) for word in weights.replace(",", " ").split() if word.isdigit()]
    assert counts[:4] == [3, 1, 1, 1]  # of three, one enlarged, one shrunk, one unchanged
    assert [int(word) for word in biases.split() if word.isdigit()] == [1]


def test_a_search_that_has_not_ended_repairs_nothing():
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(4, 4), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(4, 3))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.05 if p.dim() > 1 else 1.0)
    batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(8)]
    found = ni.optimize(model, batches, method=ni.NIO(steps=4))
    verdict = judge(found)
    assert (verdict.status, verdict.before) == ("unsolved", "dead")
