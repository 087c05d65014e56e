"""The tables of a comparison and of an automatic choice: printed, as JSON, for pandas."""

import json
import math

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.choose.comparison_table import Curves


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def choice():
    good = ni.CandidateRecord("good", (2.0, 1.0), 6, 0.5, (3.0, 2.0), learned=(0.1, 0.2))
    bad = ni.CandidateRecord("a bad one", (math.inf,), 2, 0.1, (3.0, math.nan))
    broken = ni.CandidateRecord("broken", (), 0, 0.1, failed="no gradient")
    return ni.AutoResult("good", [bad, broken, good], "why", [], 8, 20.4, budget=10)


def test_the_choice_is_printed_with_heads_cost_and_budget(choice):
    head, lines = choice.rows()
    assert [line[0] for line in lines] == ["good", "a bad one", "broken"]
    assert len(head) == 6
    assert {len(line) for line in lines} == {len(head)}
    printed = repr(choice).splitlines()
    row = next(k for k, line in enumerate(printed) if line.split()[:1] == [head[0]])
    assert [line.split()[0] for line in printed[row + 1 : row + 4]] == ["good", "a", "broken"]
    assert len({len(line) for line in printed[row : row + 4]}) == 1
    assert {"20", "8", "10"} <= set("".join(c if c.isdigit() else " " for c in printed[1]).split())
    assert max(map(len, printed)) <= 100
    assert "no gradient" in printed[-1]


def test_auto_says_its_budget():
    torch.manual_seed(0)
    model = network()
    batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(8)]
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    found = ni.auto_(model, batches, optimizer=sgd, budget=20, candidates={"LSUV": ni.LSUV()})
    assert found.budget == 20
    assert found.steps <= 20


def test_the_choice_as_json_and_frame(choice):
    data = json.loads(json.dumps(choice.to_dict(), allow_nan=False))
    assert [record["name"] for record in data["candidates"]] == ["a bad one", "broken", "good"]
    assert data["candidates"][0]["scores"] == ["inf"]
    assert (data["budget"], data["steps"]) == (10, 8)
    pytest.importorskip("pandas", reason="pandas is an extra")
    assert choice.frame().loc["good", "steps"] == 6


def test_curves_of_methods_and_trainings_are_kept(digits_like):
    def train(model):
        return 0.5, [2.0, math.inf]

    found = ni.compare(
        network,
        digits_like,
        [None, ni.NIO(steps=2, gamma=1.0, sub_batches=4)],
        [3],
        train=train,
        show=False,
    )
    assert [record.score for record in found] == [0.5, 0.5]
    assert found.curves["NIO", 3].losses == (2.0, math.inf)
    assert [step.step for step in found.curves["NIO", 3].history] == [0, 1]
    assert found.curves["as it is", 3].history == ()
    assert found.about.model == "Sequential"
    assert found.about.batch_size == 16
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["records"][1]["losses"] == [2.0, "inf"]
    assert data["records"][1]["history"][0]["norm"] == found.curves["NIO", 3].history[0].norm


def test_a_score_alone_has_no_curve(digits_like):
    found = ni.compare(network, digits_like, [None], [0], train=lambda m: 1.0, show=False)
    assert found.curves == {("as it is", 0): Curves()}
    assert "losses" not in dict(found[0])
