"""Batches that are no plain tensors: two processes do what one does, or say that they cannot."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from tests.utils.moving import ni
from tests.utils.ranks import run

SAMPLES = 12


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, sequences):
        return self.head(torch.stack([torch.tanh(self.body(s)).mean(0) for s in sequences]))


class Bag:
    """A batch of a type of its own."""

    def __init__(self, sequences, labels):
        self.sequences, self.labels = sequences, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, part):
        return Bag(self.sequences[part], self.labels[part])


def data(start, stop):
    generator = torch.Generator().manual_seed(0)
    options = {"generator": generator, "dtype": torch.float64}
    ragged = [torch.randn(2 + k % 4, 3, **options) for k in range(SAMPLES)]
    equal = [torch.randn(4, 3, **options) for _ in range(SAMPLES)]
    labels = torch.randint(2, (SAMPLES,), generator=generator)[start:stop]
    return ragged[start:stop], equal[start:stop], labels


def batch_of(kind, start, stop):
    """A batch, its loss, and options."""
    ragged, equal, labels = data(start, stop)
    if kind == "time first":
        first = torch.stack(equal, 1)
        return (
            (first, labels),
            lambda m, b: F.cross_entropy(m(b[0].unbind(1)), b[1]),
            {"batch_dim": 1},
        )
    if kind == "lists":
        return (ragged, labels), lambda m, b: F.cross_entropy(m(b[0]), b[1]), {}
    if kind == "records":
        records = [{"label": int(label), "name": "any"} for label in labels]
        return (equal, records), _loss_of_records, {}
    if kind == "packed":
        packed = pack_sequence(ragged, enforce_sorted=False)
        return (packed, labels), lambda m, b: F.cross_entropy(m(unpack_sequence(b[0])), b[1]), {}
    if kind == "nested":
        nested = torch.nested.as_nested_tensor(ragged, layout=torch.jagged)
        return (nested, labels), lambda m, b: F.cross_entropy(m(b[0].unbind()), b[1]), {}
    cut = {"cut": lambda b, start, stop: b[start:stop]} if kind == "cut" else {}
    return Bag(ragged, labels), lambda m, b: F.cross_entropy(m(b.sequences), b.labels), cut


def _loss_of_records(model, batch):
    return F.cross_entropy(model(batch[0]), torch.tensor([r["label"] for r in batch[1]]))


def solve(kind, start=0, stop=SAMPLES):
    torch.manual_seed(0)
    batch, loss, options = batch_of(kind, start, stop)
    method = ni.NIO.paper(steps=2, gamma=1e-3, sub_batches=3, overlap=0.0, lr=0.01)
    model = Sequences().double()
    found = ni.optimize(model, [batch] * 2, None, method, loss, progress=False, **options)
    return found.scales


def solve_part(rank, kinds):
    outcomes = {}
    for kind in kinds:
        try:
            outcomes[kind] = solve(kind, *[(0, 5), (5, SAMPLES)][rank])
        except ValueError as error:
            outcomes[kind] = str(error)
    return outcomes


JOINED = ["time first", "lists", "records", "packed", "nested"]


@pytest.mark.filterwarnings("ignore:The gradient norm is")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_two_ranks_find_what_one_finds(tmp_path):
    outcomes = run(2, solve_part, tmp_path, [*JOINED, "object", "cut"])
    assert all(o is not None and "value" in o for o in outcomes), outcomes
    first, second = (o["value"] for o in outcomes)
    assert first == second
    for kind in JOINED:
        assert first[kind] == pytest.approx(solve(kind), rel=1e-10), kind
    assert "`Bag` cannot be joined with those of other ranks" in first["object"]
    assert "`cut=` cannot be joined with those of other ranks" in first["cut"]
