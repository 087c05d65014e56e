"""Raising the agreement does not make a network blind; raising GradCosine does."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.methods.rules import BoundedAscent, agreement, cosine, mean_norm

LETTERS, CONTEXT, WIDTH = 7, 8, 16


class PostNorm(nn.Module):
    """Predicts the next letter: Post-LN blocks over letters and positions."""

    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(LETTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, dtype=torch.float64)
        h = self.letter(x) + self.place(torch.arange(CONTEXT))
        return self.head(self.blocks(h, mask, is_causal=True))


def texts(count, size=64):
    """Letters of unequal frequency, each of which makes one other letter likely."""
    generator = torch.Generator().manual_seed(3)
    frequency = torch.arange(1.0, LETTERS + 1).square()
    follows = 0.5 * frequency / frequency.sum() + 0.5 * torch.eye(LETTERS).roll(1, 1)
    rows = []
    for _ in range(count):
        letters = [torch.multinomial(frequency, size, True, generator=generator)]
        for _ in range(CONTEXT):
            letters.append(torch.multinomial(follows[letters[-1]], 1, generator=generator)[:, 0])
        text = torch.stack(letters, 1)
        rows.append((text[:, :-1].contiguous(), text[:, 1:].contiguous()))
    return rows


def loss_fn(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def raised(objective):
    """The result of raising an objective, with the gradient norm bounded by that of the start."""
    torch.manual_seed(0)
    model, batches = PostNorm().double(), texts(13)
    own = ni.gradient_stats(model, batches[-1], loss_fn, method=ni.NIO()).norm
    method = ni.NIO(steps=12, lr=0.05, gamma=own, rule=BoundedAscent(objective, mean_norm))
    return ni.optimize(model, batches, loss_fn, method, progress=False)


@pytest.fixture(scope="module")
def results():
    return {"cosine": raised(cosine), "agreement": raised(agreement)}


def test_each_ascent_raises_its_own_measure(results):
    for name, result in results.items():
        assert getattr(result.after, name) > getattr(result.before, name) + 0.01, name


def test_the_ascent_of_the_cosine_does_not_raise_the_agreement_as_far(results):
    assert results["agreement"].after.agreement > results["cosine"].after.agreement + 0.01


def test_the_ascent_of_the_agreement_turns_towards_the_input(results):
    scales = results["agreement"].scales
    assert scales["letter.weight"] > scales["place.weight"]
