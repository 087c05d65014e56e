"""A Lightning module as people write them, its data and a quiet trainer."""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuroinit as ni

QUIET = (
    "ignore:.*does not have many workers",
    "ignore:.*is smaller than the logging interval",
    "ignore:.*LeafSpec:FutureWarning",  # Lightning with the newest torch
)
METHOD = ni.NIO(steps=3, sub_batches=4, rule=ni.HeldNorm())


class Module(pl.LightningModule):
    """Returns a tensor, or a dict; logs, and keeps a metric and a list, as people do."""

    def __init__(self, returns="tensor", dropout=0.5):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 16), nn.Linear(16, 3)
        )
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.returns, self.seen, self.losses = returns, [], []

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        output = self.body(inputs)
        loss = F.cross_entropy(output, targets)
        self.accuracy(output, targets)
        self.log("loss", loss, prog_bar=True)
        self.log_dict({"accuracy": self.accuracy})
        if self.logger:
            self.logger.log_metrics({"by hand": float(loss.detach())}, step=self.global_step)
        self.seen.append(inputs.sum().item())
        self.losses.append(loss.detach().item())
        return {"loss": loss, "output": output.detach()} if self.returns == "dict" else loss

    def test_step(self, batch, batch_idx):
        self.log("test", self.body(batch[0]).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def loader(generator=None):
    draw = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(64, 4, generator=draw), torch.arange(64) % 3)
    return DataLoader(data, batch_size=16, shuffle=True, generator=generator)


def trainer(*callbacks, **options):
    settings = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(callbacks=list(callbacks), **{**settings, **options})


def weights(module):
    return {n: p.detach().clone() for n, p in module.named_parameters()}
