"""A handful of the zoo: the rest is `make zoo`, see docs/evidence/zoo.md."""

import pytest

from benchmarks.zoo import run as zoo

pytest.importorskip("timm", reason='needs pip install "neuroinit[experiments]"')


@pytest.mark.parametrize(
    ("library", "name", "math_kernel"),
    [
        ("timm", "lcnet_035", False),
        ("timm", "vit_tiny_patch16_224", True),
        ("torchvision", "shufflenet_v2_x0_5", False),
        ("torchvision", "squeezenet1_1", False),
    ],
)
@pytest.mark.filterwarnings("ignore")  # as the zoo itself: what a model warns of is its own
def test_the_default(library, name, math_kernel):
    record = zoo.run(library, name)
    assert record["untouched"]
    assert record["scaled"] > 0
    assert record["math_kernel"] == math_kernel


@pytest.mark.filterwarnings("ignore")
def test_zero_gains_are_reported_and_filled():
    record = zoo.run("timm", "resnet10t")
    assert record["blocked"] > 0
    assert record["blocked_filled"] == 0
    assert record["scaled_filled"] > record["scaled"]


def test_a_failure_is_a_record():
    record = zoo.guarded("timm", "no_such_model")
    assert record["model"] == "no_such_model"
    assert "no_such_model" in record["error"]
