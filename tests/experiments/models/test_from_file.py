"""Models from a file of the user."""

import pytest
import torch

from neuroinit.experiments.models import build, check_name

FILE = """
from dataclasses import dataclass
from torch import nn
from beside import WIDTH

@dataclass
class Shape:
    width: int = WIDTH

def make(classes, depth=2):
    body = [nn.Linear(Shape().width, Shape().width) for _ in range(depth)]
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(WIDTH), *body, nn.Linear(WIDTH, classes))

class Net(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Conv2d(3, num_classes, 3), nn.BatchNorm2d(num_classes))

def fixed():
    return nn.Linear(3, 4)

def needs(width):
    return nn.Linear(width, width)

def nothing(classes):
    return classes

number = 3
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside.py").write_text("WIDTH = 5\n")
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_the_function_gets_the_number_of_classes(file):
    model = build(f"{file}:make", 7)
    assert model(torch.randn(2, 3, 4, 4)).shape == (2, 7)
    assert build(f"{file}:Net", 6)[0].out_channels == 6
    assert build(f"{file}:fixed", 6).out_features == 4


def test_batchnorm_can_be_replaced(file):
    assert "Bias" in str(build(f"{file}:Net-nobn"))


def test_a_relative_path(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert build("mine.py:fixed").out_features == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.py:make", "There is no file `.*missing.py`"),
        ("mine.py:other", "there is no function `other` in"),
        ("mine.py:number", "there is no function `number` in"),
        ("mine.py:needs", "needs an argument `width`"),
        ("broken.py:make", "broken.py` raised NameError: name 'oops' is not defined"),
    ],
)
def test_wrong_names_say_what_to_do(file, name, message, monkeypatch):
    monkeypatch.chdir(file.parent)
    (file.parent / "broken.py").write_text("oops\n")
    with pytest.raises(ValueError, match=message):
        check_name(name)


def test_what_is_no_module_is_refused(file):
    with pytest.raises(ValueError, match=r"should return an `nn\.Module`\. Found int"):
        build(f"{file}:nothing")
