import pytest

from neuroinit.experiments.data.datasets import load
from tests.experiments.noise import write_noise


@pytest.fixture
def folder(tmp_path):
    """12 training and 4 test images of 20x24 pixels."""
    load.cache_clear()
    return write_noise(tmp_path, train=6, val=2, height=20, width=24)
