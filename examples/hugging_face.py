"""Hugging Face: a callback for the Trainer, a plain call for an Accelerate loop.

    pip install "neuroinit[transformers]"
    python examples/hugging_face.py

The models are made from configs: nothing is downloaded.
"""

import argparse
import tempfile

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import neuroinit as ni
from neuroinit.integrations.transformers import InitCallback


class Counting(Dataset):
    """Sequences that count upwards from a random start, in a vocabulary of 64."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(24) + 7 * index) % 64
        return {"input_ids": tokens, "labels": tokens}


def gpt2(layers: int) -> GPT2LMHeadModel:
    """A small GPT-2, with its tied embeddings and default attention."""
    sizes = {"n_layer": layers, "n_head": 4, "n_embd": 64, "n_positions": 24, "vocab_size": 64}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def with_trainer(layers: int, steps: int) -> None:
    """The Trainer: one callback."""
    callback = InitCallback(steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=2 * steps,
            per_device_train_batch_size=16,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=steps,
        )
        trainer = Trainer(gpt2(layers), arguments, train_dataset=Counting(), callbacks=[callback])
        trainer.train()
    print(callback.result)


def with_accelerate(layers: int, steps: int) -> None:
    """Your own loop: one call, before or after ``prepare``."""
    accelerator = Accelerator(cpu=True)
    model, loader = gpt2(layers), DataLoader(Counting(), batch_size=16, shuffle=True)
    ni.nio_(model, loader, compute_loss=lambda model, batch: model(**batch).loss, steps=steps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _, batch in zip(range(2 * steps), loader, strict=False):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print(f"with Accelerate: last training loss {loss.item():.4g}")


def main() -> None:
    """Both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    with_trainer(2 if quick else 4, 3 if quick else 30)
    with_accelerate(2 if quick else 4, 3 if quick else 30)


if __name__ == "__main__":
    main()
