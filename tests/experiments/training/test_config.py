"""The configuration of a run: its checks, its key, and its learning rate."""

from dataclasses import replace

import pytest

from neuroinit.experiments.data.augmentation import Augmentation
from neuroinit.experiments.training.config import Config


def test_digits_are_not_augmented_by_default():
    assert Config().augmentation == Augmentation(crop=0, flip=False)
    assert Config(augmentation=Augmentation(cutout=2)).augmentation.cutout == 2
    asked = Config(augmentation=Augmentation(crop=1, flip=True)).augmentation
    assert (asked.crop, asked.flip) == (1, True)
    for name in ("cifar10", "folder:here"):
        assert Config(data=name).augmentation == Augmentation(crop=4, flip=True)


def test_json_has_the_whole_configuration():
    config = Config(milestones=(1, 2), augmentation=Augmentation(mixup=0.5), image_size=16)
    assert Config.from_json(config.to_json()) == config


def test_keys_are_stable_and_differ():
    """The key names the folder of a run: if it changed, no run would be found again."""
    config = Config()
    assert config.key == "6231d20d1d"
    others = [replace(config, seed=1), replace(config, lr=0.2), replace(config, method="nio")]
    assert len({config.key, *(other.key for other in others)}) == 4


def test_learning_rates():
    steps = 10
    warm = Config(epochs=4, warmup_epochs=1, lr=1.0)
    assert [warm.learning_rate(s, steps) for s in (0, 4, 9)] == [0.1, 0.5, 1.0]
    assert warm.learning_rate(39, steps) < 0.01
    stepped = Config(epochs=4, schedule="step", milestones=(1, 3), lr=1.0)
    assert [round(stepped.learning_rate(s, steps), 9) for s in (9, 10, 30)] == [1.0, 0.1, 0.01]
    constant = Config(epochs=4, schedule="constant", lr=0.3)
    assert {constant.learning_rate(s, steps) for s in range(40)} == {0.3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "`lr` should be a finite number > 0"),
        ({"epochs": 0}, "`epochs` should be an int of at least 1"),
        ({"schedule": "linear"}, "`schedule` should be one of 'cosine'"),
        ({"warmup_epochs": 5.0, "epochs": 2}, "`warmup_epochs = 5` is more than `epochs = 2`"),
        ({"augmentation": Augmentation(crop=-1)}, "`crop` should be an int of at least 0"),
        ({"augmentation": Augmentation(cutout=-3)}, "`cutout` should be an int of at least 0"),
        ({"augmentation": Augmentation(mixup=-1.0)}, "`mixup` should be a finite number >= 0"),
        ({"image_size": 0}, "`image_size` should be an int of at least 1"),
    ],
)
def test_wrong_values_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)
