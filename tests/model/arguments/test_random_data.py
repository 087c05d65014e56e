"""No data at hand: an example of the inputs stands for it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.model.arguments.random_data import in_place_of_data, random_batches
from tests.utils.moving import ni
from tests.utils.snapshots import assert_unchanged, snapshot

EXAMPLE = 3 + 2 * torch.randn(64, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)
    )


def test_inputs_are_like_the_example_and_labels_are_of_all_classes():
    inputs, labels = next(iter(in_place_of_data(EXAMPLE, network(), F.cross_entropy, 0)))
    assert inputs.shape == EXAMPLE.shape
    assert abs(inputs.mean() - 3) < 0.3
    assert abs(inputs.std() - 2) < 0.3
    assert set(labels.tolist()) == set(range(5))


def test_a_single_input_stands_for_batches():
    inputs, labels = next(iter(in_place_of_data(EXAMPLE[:1], network(), F.cross_entropy, 0)))
    assert inputs.shape == (32, 1, 6, 6)
    assert labels.shape == (32,)


def test_scores_of_every_place_get_a_label_each():
    segment = nn.Conv2d(1, 3, 1)
    inputs, labels = next(iter(in_place_of_data(EXAMPLE, segment, F.cross_entropy, 0)))
    assert labels.shape == (64, 6, 6)
    assert torch.isfinite(F.cross_entropy(segment(inputs), labels))


def test_channels_that_are_as_many_as_classes_are_no_tokens():
    """Only tokens of integers can be meant as classes by mistake."""
    signals, segment = torch.randn(8, 6, 5), nn.Conv1d(6, 6, 3, padding=1)
    _, labels = next(iter(in_place_of_data(signals, segment, F.cross_entropy, 0)))
    assert labels.shape == (32, 5)


@pytest.mark.parametrize("batches", [(), (None,)], ids=["left out", "None"])
def test_nio_needs_only_an_example(batches):
    model, other = network(), network()
    result = ni.nio_(model, *batches, example=EXAMPLE, steps=3)
    assert len(result.history) == 3
    same = ni.nio_(other, random_batches(EXAMPLE, 5), steps=3)
    assert result.scales == same.scales


def test_the_model_is_left_alone_by_optimize():
    model = network()
    before = snapshot(model)
    ni.optimize(model, example=EXAMPLE, method=ni.NIO(steps=2))
    assert_unchanged(before, model)


def test_every_learned_method_takes_an_example():
    for function in (ni.gradinit_, ni.metainit_):
        assert len(function(network(), example=EXAMPLE, steps=2).history) == 2
    assert ni.lsuv_(network(), example=EXAMPLE).scales


def test_neither_or_both():
    with pytest.raises(TypeError, match="Found neither"):
        ni.nio_(network())
    with pytest.raises(TypeError, match="Found both"):
        ni.nio_(network(), [EXAMPLE], example=EXAMPLE)


def test_labels_need_class_scores():
    with pytest.raises(ValueError, match=r"Found \(64,\)\. Pass `batches`"):
        ni.nio_(nn.Sequential(nn.Flatten(), nn.Linear(36, 1), nn.Flatten(0)), example=EXAMPLE)


class Words(nn.Module):
    """Scores of every token."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x)))


TOKENS = torch.arange(24).view(4, 6) % 20


def of_tokens(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def test_a_language_model_needs_the_loss_of_one():
    result = ni.nio_(Words(), example=TOKENS, loss_fn=of_tokens, steps=2)
    assert result.settings["gamma"] == pytest.approx(torch.tensor(20.0).log().item(), rel=1e-4)
    with pytest.raises(ValueError, match="scores for every token"):
        ni.nio_(Words(), example=TOKENS)


@pytest.mark.parametrize(
    ("model", "example", "loss", "message"),
    [
        (nn.Linear(4, 1), torch.randn(8, 4), F.cross_entropy, "there is one class only"),
        (nn.Linear(4, 3), torch.randn(8, 4), F.mse_loss, "does not take random labels"),
        (nn.Linear(4, 3), torch.randn(8, 5), F.cross_entropy, "does not take random inputs"),
        (Words(), (8, 6), of_tokens, "does not take random inputs"),
        (Words(), TOKENS - 1, of_tokens, "should not be negative. Found -1"),
    ],
    ids=["one class", "regression", "other inputs", "a shape of tokens", "negative"],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_what_cannot_be_drawn_is_said(model, example, loss, message):
    with pytest.raises(ValueError, match=message):
        ni.nio_(model, example=example, loss_fn=loss)


@pytest.mark.parametrize("example", [(TOKENS, TOKENS), {"x": TOKENS}])
def test_an_example_is_one_tensor(example):
    with pytest.raises(TypeError, match=r"one tensor, or a shape.*Found a `(tuple|dict)`\.$"):
        ni.nio_(Words(), example=example)


def test_a_loss_of_ones_own_needs_batches():
    with pytest.raises(TypeError, match="With `compute_loss`, pass `batches`"):
        ni.nio_(network(), example=EXAMPLE, compute_loss=lambda model, batch: 0)


def test_shapes_that_fit_by_chance_are_no_classifier():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64))
    with pytest.raises(ValueError, match="does not take random labels"):
        ni.nio_(model, None, F.mse_loss, example=torch.randn(64, 64))


def test_the_error_of_a_loss_that_refuses_random_labels_is_quoted():
    def picky(output, labels):
        raise ValueError("labels must be pairs")

    with pytest.raises(ValueError, match=r"does not take random labels.*labels must be pairs"):
        ni.nio_(network(), None, picky, example=EXAMPLE)


def test_an_example_that_is_not_finite():
    with pytest.raises(ValueError, match="`example` is not finite"):
        ni.nio_(network(), example=torch.full((8, 36), float("nan")))


def test_an_optimizer_that_is_none():
    with pytest.raises(TypeError, match="It returned a `int`"):
        ni.nio_(network(), example=EXAMPLE, optimizer=lambda p: 3)


def test_tokens_are_drawn_up_to_the_largest_of_the_example():
    example = torch.tensor([[0, 3, 1], [2, 3, 0]])
    inputs, _ = next(iter(random_batches(example, classes=2, size=64)))
    assert inputs.shape == (64, 3)
    assert set(inputs.flatten().tolist()) == {0, 1, 2, 3}
