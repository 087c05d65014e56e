import pytest
import torch

from neuroinit.gradients import measures
from tests.utils import oracles


@pytest.fixture
def gram():
    gradients = torch.randn(5, 7, dtype=torch.float64)
    return gradients @ gradients.T


def test_moments_are_those_of_the_oracle(gram):
    found = measures.moments(gram)
    torch.testing.assert_close(found.cosine, oracles.cosine(gram))
    torch.testing.assert_close(found.norm, oracles.norm(gram))
    torch.testing.assert_close(found.variance, oracles.variance(gram))
    theta = measures.theta(found.norms, measures.cosines(gram), 2.0)
    torch.testing.assert_close(theta, oracles.theta(gram, 2.0))


def test_cosine_is_unchanged_when_the_loss_is_rescaled(gram):
    torch.testing.assert_close(measures.moments(9.0 * gram).cosine, measures.moments(gram).cosine)


def test_measures_are_unchanged_when_sub_batches_are_permuted(gram):
    order = torch.randperm(5)
    a, b = measures.moments(gram), measures.moments(gram[order][:, order])
    torch.testing.assert_close(a.cosine, b.cosine)
    torch.testing.assert_close(a.variance, b.variance)


def test_variance_is_the_summed_variance_of_the_entries():
    gradients = torch.randn(5, 7, dtype=torch.float64)
    expected = gradients.var(0, unbiased=False).sum()
    torch.testing.assert_close(measures.variance(gradients @ gradients.T), expected)


def test_distinct_cosine_leaves_out_the_diagonal(gram):
    cosines = measures.cosines(gram)
    expected = (cosines.sum() - 5) / (25 - 5)
    torch.testing.assert_close(measures.moments(gram).distinct_cosine, expected)


def test_theta_is_zero_for_equal_gradients():
    gram = torch.full((4, 4), 9.0, dtype=torch.float64)
    found = measures.moments(gram)
    assert measures.theta(found.norms, measures.cosines(gram)).item() == pytest.approx(0.0)


def test_variance_without_a_gram_matrix_says_what_to_do():
    lean = measures.Moments(torch.ones(2), torch.tensor(1.0))
    with pytest.raises(ValueError, match="`gram=True`"):
        _ = lean.variance
