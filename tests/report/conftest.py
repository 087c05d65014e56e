"""Results of every kind, and a browser to open their pages in."""

import shutil

import pytest
import torch
from torch import nn

import neuroinit as ni

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def make_result(factor=1.0, method=None, layers=5):
    """NIO on a small network whose weights were multiplied by ``factor``."""
    torch.manual_seed(0)
    hidden = [part for _ in range(layers - 2) for part in (nn.Linear(16, 16), nn.ReLU())]
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), *hidden, nn.Linear(16, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= factor
    batches = [(torch.randn(32, 8), torch.randint(3, (32,))) for _ in range(21)]
    return ni.optimize(model, batches, method=method or ni.NIO(steps=20), progress=False)


@pytest.fixture(scope="session")
def exploding():
    return make_result(factor=5.0)


@pytest.fixture(scope="session")
def comparison():
    torch.manual_seed(0)
    batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(5)]

    def train(model):
        losses = [3.0 - model[0].weight.abs().mean().item(), 1.0]
        return losses[-1], losses

    return ni.compare(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
        batches,
        {"start": None, "Kaiming": ni.Kaiming(), "ours": ni.NIO(steps=3, sub_batches=4)},
        [0, 1, 2],
        train=train,
        show=False,
    )


@pytest.fixture(scope="session")
def choice():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(9)]
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    candidates = {"Kaiming": ni.Kaiming(), "LSUV": ni.LSUV()}
    return ni.auto_(model, batches, optimizer=sgd, budget=30, candidates=candidates)


@pytest.fixture(scope="session")
def pages(exploding, comparison, choice, tmp_path_factory):
    """The files of one page of every kind, by name."""
    pytest.importorskip("matplotlib", reason='needs pip install "neuroinit[report]"')
    folder = tmp_path_factory.mktemp("pages")
    made = {"result": exploding, "comparison": comparison, "choice": choice}
    for name, thing in made.items():
        thing.report(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()
