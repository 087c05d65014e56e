import pytest
import torch
from PIL import Image

from neuroinit.experiments.data.datasets import load


@pytest.fixture
def folder(tmp_path):
    """Two classes of noise of 20x24 pixels; 12 images for training, 4 for testing."""
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", 6), ("val", 2)):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = torch.randint(256, (20, 24, 3), generator=generator, dtype=torch.uint8)
                Image.fromarray(pixels.numpy()).save(tmp_path / part / name / f"{i}.png")
    load.cache_clear()
    return tmp_path
