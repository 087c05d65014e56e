"""Which starts the rule leaves alone, from what it sees of them."""

import pytest

from benchmarks.defaults.limits import DEAD, EXPLODES, PROMISE, SUITE, works
from neuroinit import CommonFactor

SGD, ADAM = "SGD 0.1, momentum 0.9", "AdamW 0.003"  # rates of 1 and 0.003
START = {"finite": True, "loss": 1.0, "s": 0.5, "squared": 1.0, "absolute": 1.0}


@pytest.mark.parametrize("optimizer", list(SUITE.optimizers))
def test_a_start_that_works(optimizer):
    assert works(START, optimizer)


@pytest.mark.parametrize("change", [{"finite": False}, {"loss": 2.1}, {"s": 0.09}])
@pytest.mark.parametrize("optimizer", list(SUITE.optimizers))
def test_a_start_that_does_not(change, optimizer):
    assert not works({**START, **change}, optimizer)


def test_the_promise_is_that_of_the_optimizer():
    steep = {**START, "squared": 11.0, "absolute": 3000.0}
    assert not works(steep, SGD)
    assert works(steep, ADAM)
    assert works(steep, SGD, promise=12.0)
    assert not works({**steep, "absolute": 4000.0}, ADAM)


def test_the_limits_are_those_of_the_rule():
    rule = CommonFactor()
    assert (rule.dead, rule.explodes, rule.promise) == (DEAD, EXPLODES, PROMISE)
