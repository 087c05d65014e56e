"""Losses and bounds for which a clear message is needed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit
from tests.run.small import batches_of, network
from tests.utils.moving import ni


def test_inputs_that_are_not_finite_are_named():
    (x, y), *_ = batches_of(16)
    x[3, 2] = float("nan")
    expected = r"Step 0: .*The batch has NaN or inf in a tensor of shape \(16, 4\)"
    with pytest.raises(ni.NonFiniteError, match=expected):
        ni.nio_(network(), [(x, y)])


def test_a_loss_without_a_graph_is_named():
    with pytest.raises(ValueError, match="does not depend on any trainable parameter"):
        ni.nio_(network(), batches_of(16), lambda y, t: F.cross_entropy(y, t).detach())


def test_a_sample_without_a_label_that_counts_is_named():
    x, y = torch.randn(8, 5, 4), torch.randint(3, (8, 5))
    y[6] = -100
    expected = "All labels of sample 6 are -100, so a sub-batch may have no label that counts"
    with pytest.raises(ni.NonFiniteError, match=expected):
        ni.nio_(
            network(), [(x, y)], lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()), gamma=1
        )


def masked(x, y):
    y[4:8] = -100
    return x, y


def with_infinity(x, y):
    x[3, 2] = float("inf")
    return x, y


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [(masked, "All labels of sample 4 are -100"), (with_infinity, "The batch has NaN or inf")],
)
def test_every_function_names_what_is_wrong_with_a_batch(spoil, expected):
    batch = spoil(*batches_of(16)[0])
    for call in (
        lambda: neuroinit.nio_(network(), [batch]),
        lambda: ni.gradient_stats(network(), batch, sub_batches=4),
        lambda: ni.gradsign(network(), batch),
    ):
        with pytest.raises(ni.NonFiniteError, match=expected):
            call()


def test_attention_without_double_backward_in_a_loss_with_a_gradient_is_named():
    def penalty(model, batch):
        x = batch.clone().requires_grad_()
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return g.square().mean()

    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    with pytest.raises(RuntimeError, match=r"attention.*takes a gradient itself.*SDPBackend.MATH"):
        ni.gradient_stats(model, torch.randn(8, 3, 4), compute_loss=penalty)


def test_a_loss_that_is_zero_at_zero_output_has_a_bound():
    def energy(model, batch):
        return model(batch[0]).square().mean()

    with pytest.warns(UserWarning, match="takes the bound from the model's own loss"):
        result = ni.nio_(network(), batches_of(16), compute_loss=energy, steps=3)
    assert result.settings["gamma"] > 0


def test_a_bound_that_is_not_reached_is_said():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1e6
    with pytest.warns(UserWarning, match="far above the bound `gamma = 1`"):
        ni.nio_(model, batches_of(16), steps=1, gamma=1.0)


def test_a_norm_above_the_bound_is_never_called_within_it():
    result = ni.optimize(network(), batches_of(16, 30), method=ni.NIO(steps=25, gamma=0.5))
    above = [record for record in result.history if record.norm > 0.5]
    assert above
    assert all(record.constrained for record in above)
    assert not any(record.constrained for record in result.history if record.norm <= 0.5)
