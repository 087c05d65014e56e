import importlib.util
import os
import signal

import pytest
import torch

from neuroinit.experiments.vision import torchvision

# Some virtual machines announce AMX and die of it ("Illegal instruction") in bfloat16 products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# A shell starts background jobs with SIGINT ignored; tests of interrupts would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("torchvision"):
    torchvision()  # Lightning, transformers and timm import it, too: first, where it can be helped


@pytest.fixture(autouse=True)
def _reproducible():
    torch.set_num_threads(1)  # the models are tiny, and the tests run in several processes
    torch.manual_seed(0)


@pytest.fixture
def digits_like():
    """Batches of 16 samples of size 4 with three classes."""
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(16, 4, generator=generator),
            torch.randint(3, (16,), generator=generator),
        )
        for _ in range(6)
    ]


@pytest.fixture
def small_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
