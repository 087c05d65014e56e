"""Folders of noise images."""

import torch
from PIL import Image


def write_noise(folder, train, val, height, width):
    """Write PNG files of two classes: so many images per class for training and for testing."""
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", train), ("val", val)):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = torch.randint(256, (height, width, 3), generator=generator)
                image = Image.fromarray(pixels.to(torch.uint8).numpy())
                image.save(folder / part / name / f"{i}.png")
    return folder
