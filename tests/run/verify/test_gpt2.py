"""When GPT-2's scales are tried."""

import pytest
import torch
from torch import nn

import neuroinit as ni
from tests.run.verify.networks import Block, learnable, network, phases, sgd


class Words(nn.Module):
    """Embeddings, residual branches, and a classifier of the mean."""

    def __init__(self, blocks, gain=1.0, variety=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.word = nn.Embedding(12, 32)
        self.blocks = nn.Sequential(*[Block(32) for _ in range(blocks)])
        self.head = nn.Linear(32, 3)
        with torch.no_grad():
            self.word.weight.mul_(variety).add_(1 - variety)
            for p in self.blocks.parameters():
                p *= gain

    def forward(self, tokens):
        return self.head(self.blocks(self.word(tokens)).mean(1))


def sentences(count=20, size=64):
    """Batches of tokens; the first of a sentence decides its class."""
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randint(12, (size, 4), generator=generator) for _ in range(count)]
    return [(t, t[:, 0] // 4) for t in tokens]


GPT2 = "to all weights and residual branches, as in GPT-2"


@pytest.mark.parametrize(("variety", "tried"), [(1.0, False), (1e-6, True)])
def test_gpt2_scales_are_tried_only_if_the_model_learns_nothing(monkeypatch, variety, tried):
    seen = phases(monkeypatch)
    slow = torch.optim.SGD
    ni.nio_(Words(4, variety=variety), sentences(), optimizer=lambda p: slow(p, lr=1e-4))
    assert (f"training the result, {GPT2}" in seen) == tried
    assert "training the result, to residual branches, with squared factors" in seen


def test_gpt2_scales_replace_smaller_branches_of_a_network_that_explodes(monkeypatch):
    seen = phases(monkeypatch)
    ni.nio_(Words(12, gain=6.0), sentences(), optimizer=sgd)
    names = [text.removeprefix("training the result, ") for text in seen if "result" in text]
    assert names == [
        "whole",
        "to residual branches",
        "layer by layer, with small residual branches",
        GPT2,
    ]


def test_a_network_without_embeddings_is_not_given_gpt2_scales(monkeypatch):
    seen = phases(monkeypatch)
    ni.nio_(network(12, gain=4.0), learnable(), optimizer=sgd)
    assert "training the result, to residual branches" in seen
    assert f"training the result, {GPT2}" not in seen
