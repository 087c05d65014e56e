"""Parts of NIO's objective on their own, composed from the measures."""

import pytest

import neuroinit as ni
from neuroinit.gradients.measures import moments
from neuroinit.methods import rules
from neuroinit.methods.rules import BoundedAscent
from neuroinit.methods.updates import OneScale, TwoMomentAdam

ABLATIONS = {
    "cosine alone": BoundedAscent(rules.cosine),
    "norm alone": BoundedAscent(rules.mean_norm),
    "variance": BoundedAscent(rules.low_variance, gram=True),
    "variance and norm": BoundedAscent(rules.low_variance_and_norm, gram=True),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_raises_what_it_is_named_after(name, digits_like, small_model):
    rule = ABLATIONS[name]
    method = ni.NIO(rule=rule, gamma=100.0, lr=0.02, steps=25, sub_batches=4)
    result = ni.optimize(small_model, digits_like[:1], method=method)

    def reached(stats):
        gram = stats.cosines * stats.norms[:, None] * stats.norms[None, :]
        return float(rule.objective(moments(gram)))

    assert reached(result.after) > reached(result.before)
    assert result.settings["rule"]["objective"] == rule.objective.__name__


def test_variance_alone_shrinks_the_norm(digits_like, small_model):
    """What the paper says against it in Sec. 6.3."""
    method = ni.NIO(rule=ABLATIONS["variance"], gamma=100.0, lr=0.05, steps=60, sub_batches=4)
    result = ni.optimize(small_model, digits_like[:1], method=method)
    assert result.after.norm < 0.6 * result.before.norm


def test_one_scale(digits_like, small_model):
    rule = BoundedAscent(update=OneScale(TwoMomentAdam()))
    method = ni.NIO(rule=rule, gamma=100.0, lr=0.02, steps=5, sub_batches=4)
    scales = ni.optimize(small_model, digits_like, method=method).scales
    assert len(set(scales.values())) == 1
    assert scales["0.weight"] != 1
