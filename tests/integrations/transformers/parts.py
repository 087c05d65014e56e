"""Tiny Hugging Face models made from configs, their data and a quiet trainer: no download."""

import torch
import transformers
from torch.utils.data import Dataset

import neuroinit as ni

METHOD = ni.NIO(steps=3, sub_batches=4, rule=ni.HeldNorm())
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}


def gpt2():
    config = transformers.GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=16,
        vocab_size=50,
        n_positions=12,
        bos_token_id=1,
        eos_token_id=1,
    )
    return transformers.GPT2LMHeadModel(config)


def bert():
    config = transformers.BertConfig(**SIZES, intermediate_size=32, vocab_size=50, num_labels=3)
    return transformers.BertForSequenceClassification(config)


def masked_bert():
    config = transformers.BertConfig(**SIZES, intermediate_size=32, vocab_size=50)
    return transformers.BertForMaskedLM(config)


def vit():
    config = transformers.ViTConfig(
        **SIZES, intermediate_size=32, image_size=8, patch_size=4, num_channels=1, num_labels=3
    )
    return transformers.ViTForImageClassification(config)


class Data(Dataset):
    """Samples that fit a model, by what it is."""

    def __init__(self, kind, count=64):
        generator = torch.Generator().manual_seed(1)
        self.rows = [self._row(kind, generator) for _ in range(count)]

    def _row(self, kind, generator):
        tokens = torch.randint(2, 50, (12,), generator=generator)
        label = torch.randint(3, (), generator=generator)
        if kind is vit:
            return {"pixel_values": torch.randn(1, 8, 8, generator=generator), "labels": label}
        if kind is bert:
            return {"input_ids": tokens, "attention_mask": torch.ones(12).long(), "labels": label}
        return {"input_ids": tokens, "labels": tokens}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def batches(kind, size=16):
    rows = Data(kind).rows
    return [
        {key: torch.stack([row[key] for row in rows[i : i + size]]) for key in rows[0]}
        for i in range(0, len(rows), size)
    ]


def trainer(model, kind, folder, *callbacks, **options):
    settings = {
        "output_dir": str(folder),
        "max_steps": 4,
        "per_device_train_batch_size": 16,
        "learning_rate": 1e-9,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "dataloader_pin_memory": False,
    }
    return transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(**{**settings, **options}),
        train_dataset=Data(kind),
        callbacks=list(callbacks),
    )


def model_loss(model, batch):
    """The loss that a model computes by itself when a batch has labels."""
    return model(**batch).loss
