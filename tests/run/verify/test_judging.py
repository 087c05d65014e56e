"""Which short training wins: outcomes made by hand."""

import math

import pytest

from neuroinit.run.judging import Judge
from neuroinit.run.rollout import Outcome

BLIND = Outcome([2.3, 2.3], [0.0, 0.0])
GOOD = Outcome([0.4, 0.4], [1.9, 1.9])
EXPLODED = Outcome([63.0, 63.0], [65.0, 65.0])


def test_nothing_has_learned_more_than_the_best_answer_without_inputs_could_lose():
    sure = Outcome([0.0, 0.0], [9.0, 9.0])  # no loss, and a large one with other targets
    judge = Judge(BLIND, first_loss=2.3).among([GOOD, EXPLODED, sure])
    scores = [judge.scores(outcome)[0] for outcome in (BLIND, GOOD, EXPLODED, sure)]
    assert scores == pytest.approx([2.3, 0.4 - 1.9, 63 - 2.3 * 65 / 128, -2.3])


def test_outputs_that_explode_are_not_kept():
    judge = Judge(EXPLODED, first_loss=70.0)
    assert not judge.is_ahead(GOOD, 1.0)  # scores of -2 and -1.5
    assert judge.among([GOOD]).is_ahead(GOOD, 1.0)


def test_outputs_that_explode_do_not_win_where_the_start_fails():
    judge, candidates = Judge(BLIND, first_loss=70.0), {"exploded": EXPLODED, "good": GOOD}
    assert judge.best(candidates) == "exploded"
    assert judge.among(candidates.values()).best(candidates) == "good"


@pytest.mark.parametrize(
    "outcomes",
    [
        [Outcome([-3.0], [4.0]), Outcome([1.0], [0.5])],  # losses that may be negative
        [Outcome([1.0], []), Outcome([2.0], [])],  # the targets are not known
        [Outcome([math.inf], [math.inf])],
    ],
)
def test_outcomes_without_a_bound(outcomes):
    judge = Judge(outcomes[0], first_loss=1.0)
    assert judge.among(outcomes) == judge


def test_a_loss_of_zero_for_all_targets_has_learned_nothing():
    nothing = Outcome([0.0], [0.0])
    assert Judge(nothing, first_loss=0.0).among([nothing]).scores(nothing) == [0.0]


def test_losses_of_a_divergence_in_float64_do_not_overflow():
    start = Outcome([1e200], [1e200])
    assert Judge(start, first_loss=2.0).of(Outcome([1.0], [0.5])) == "loss 1"
    assert not start.learned_nothing


def test_an_infinite_loss_with_other_targets_counts_as_all_that_can_be_learned():
    start, sure = Outcome([1.0, 1.0], [0.1, 0.1]), Outcome([0.9, 0.9], [math.inf, 0.2])
    judge = Judge(start, first_loss=1.2).among([sure])
    assert judge.scores(sure) == pytest.approx([0.9 - 1.1, 0.9 - 1.1 * 0.2 / 1.1])


def test_a_small_lead_is_not_enough():
    start, better = (Outcome([a, b], [0.1, 0.1]) for a, b in ((2.10, 2.30), (2.08, 2.28)))
    judge = Judge(start, first_loss=2.4).among([better])
    assert judge.is_ahead(better, 1.0)
    assert judge.is_ahead(better, 1.0, 0.005)
    assert not judge.is_ahead(better, 1.0, 0.02)
