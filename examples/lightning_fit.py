"""Lightning: one callback.

pip install "neuroinit[lightning]"
python examples/lightning_fit.py
"""

import argparse
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from neuroinit.integrations.lightning import InitCallback


class Classifier(pl.LightningModule):
    """An ordinary module: nothing in it refers to neuroinit."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        body = [m for _ in range(depth) for m in (nn.Linear(64, 64), nn.ELU())]
        self.network = nn.Sequential(nn.Linear(20, 64), *body, nn.Linear(64, 4))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        inputs, targets = batch
        loss = F.cross_entropy(self.network(inputs), targets)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    """Fit with the callback, and print its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    quick = parser.parse_args().quick
    pl.seed_everything(0)
    inputs = torch.randn(2000, 20)
    targets = (inputs @ torch.randn(20, 4)).argmax(1)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=64, shuffle=True)
    callback = InitCallback(steps=5 if quick else 40)
    trainer = pl.Trainer(
        max_epochs=1 if quick else 5,
        callbacks=[callback],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(4 if quick else 16), loader)
    print(callback.result)
    print(f"last training loss {float(trainer.callback_metrics['loss']):.4g}")


if __name__ == "__main__":
    main()
