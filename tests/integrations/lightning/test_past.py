"""Lightning: weights that were loaded or trained are left alone, and fresh ones are not."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

pl = pytest.importorskip("lightning.pytorch", reason='needs pip install "neuroinit[lightning]"')
pytest.importorskip("torchmetrics")
from lightning.pytorch.callbacks import LearningRateFinder  # noqa: E402
from lightning.pytorch.tuner import Tuner  # noqa: E402

from neuroinit.integrations.lightning import InitCallback  # noqa: E402
from tests.integrations.lightning.parts import (  # noqa: E402
    METHOD,
    QUIET,
    Module,
    loader,
    trainer,
    weights,
)

pytestmark = pytest.mark.filterwarnings(*QUIET)


@pytest.fixture
def checkpoint(tmp_path):
    """A file that was saved by a trainer without the callback."""
    run, path = trainer(), tmp_path / "trained.ckpt"
    run.fit(Module(), loader())
    run.save_checkpoint(path)
    return path


def untouched(module, before):
    return all(torch.equal(p, before[n]) for n, p in module.named_parameters())


def assert_left_alone(module, callback, match):
    before = weights(module)
    with pytest.warns(UserWarning, match=match) as caught:
        trainer(callback).fit(module, loader())
    assert len([w for w in caught if "InitCallback" in str(w.message)]) == 1
    assert untouched(module, before)  # the learning rate is 0
    assert callback.result is None


def test_load_from_checkpoint_is_left_alone_with_one_warning(checkpoint):
    module = Module.load_from_checkpoint(checkpoint)
    assert_left_alone(module, InitCallback(METHOD), r"`Module` was loaded.*force=True")
    before = weights(module)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*InitCallback")
        trainer(InitCallback(METHOD)).fit(module, loader())  # it has been said
    assert untouched(module, before)


def test_a_state_dict_that_was_loaded_by_hand_is_left_alone():
    module = Module()
    module.load_state_dict(Module().state_dict())
    assert_left_alone(module, InitCallback(METHOD), "`Module` was loaded")


def test_a_part_that_was_loaded_by_hand_is_left_alone():
    module = Module()
    module.body[0].load_state_dict(nn.Linear(4, 16).state_dict())
    assert_left_alone(module, InitCallback(METHOD), r"its part `body\.0` was loaded.*include=")


@pytest.mark.parametrize("same_trainer", [False, True])
def test_weights_that_were_loaded_for_a_validation_are_left_alone(checkpoint, same_trainer):
    module, callback = Module(), InitCallback(METHOD)
    run = trainer(callback)
    unshuffled = DataLoader(loader().dataset, batch_size=16)
    run.test(module, unshuffled, ckpt_path=checkpoint, verbose=False)
    before = weights(module)
    run = run if same_trainer else trainer(callback)
    with pytest.warns(UserWarning, match="`Module` was loaded"):
        run.fit(module, loader())
    assert untouched(module, before)


def test_force_initializes_a_loaded_module_once(checkpoint):
    module = Module.load_from_checkpoint(checkpoint)
    callback = InitCallback(METHOD, force=True)
    trainer(callback).fit(module, loader())
    assert callback.result is not None
    before = weights(module)
    trainer(InitCallback(METHOD, force=True)).fit(module, loader())  # trained meanwhile
    assert untouched(module, before)


def test_a_callback_runs_for_a_second_module():
    callback, first, second = InitCallback(METHOD), Module(), Module()
    trainer(callback).fit(first, loader())
    found, before = callback.result, weights(first)
    trainer(callback).fit(second, loader())
    assert callback.result is not found
    assert untouched(first, before)


def test_a_second_callback_leaves_the_module_alone():
    module = Module()
    trainer(InitCallback(METHOD)).fit(module, loader())
    before, callback = weights(module), InitCallback(METHOD)
    trainer(callback).fit(module, loader())
    assert untouched(module, before)
    assert callback.result is None


def test_a_module_that_was_trained_in_a_dry_run_is_left_alone():
    module, callback = Module(), InitCallback(METHOD)
    trainer(callback, fast_dev_run=True).fit(module, loader())
    before = weights(module)
    trainer(callback).fit(module, loader())
    assert untouched(module, before)


def test_a_trained_part_of_a_new_module_is_left_alone():
    first, second = Module(), Module()
    trainer(InitCallback(METHOD)).fit(first, loader())
    second.body[0] = first.body[0]
    callback = InitCallback(METHOD, force=True)  # trained in this process: never again
    assert_left_alone(second, callback, r"`body\.0` was initialized or trained before.*exclude=")


def test_the_rest_of_a_new_module_can_be_initialized():
    first, second = Module(), Module()
    trainer(InitCallback(METHOD)).fit(first, loader())
    second.body[0] = first.body[0]
    before, callback = weights(second), InitCallback(exclude=("body.0.*",), steps=3, sub_batches=4)
    trainer(callback).fit(second, loader())
    assert sorted(callback.result.scales) == sorted(n for n in before if "body.0." not in n)
    assert torch.equal(second.body[0].weight, before["body.0.weight"])


def test_a_new_part_is_initialized_once():
    module = Module()
    trainer(InitCallback(METHOD)).fit(module, loader())
    module.body[4] = nn.Linear(16, 3)
    head = {"include": ("body.4.*",), "steps": 3, "sub_batches": 4}
    callback = InitCallback(**head)
    trainer(callback).fit(module, loader())
    assert sorted(callback.result.scales) == ["body.4.bias", "body.4.weight"]
    before = weights(module)
    trainer(InitCallback(**head)).fit(module, loader())
    assert untouched(module, before)


def test_a_frozen_part_that_was_loaded_does_not_matter(checkpoint):
    module = Module()
    module.body[0] = Module.load_from_checkpoint(checkpoint).body[0].requires_grad_(False)
    callback = InitCallback(METHOD)
    trainer(callback).fit(module, loader())
    assert callback.result is not None


class Normalized(Module):
    def __init__(self, norm):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), norm(16), nn.ReLU(), nn.Linear(16, 3))


def train_by_hand(module, lr):
    optimizer = torch.optim.SGD(module.body.parameters(), lr=lr)
    for inputs, targets in loader():
        optimizer.zero_grad()
        nn.functional.cross_entropy(module.body(inputs), targets).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("norm", "lr", "match"),
    [
        (
            nn.BatchNorm1d,
            0.0,
            r"statistics of its BatchNorm1d layer `body\.1` are not new",
        ),
        (nn.LayerNorm, 0.1, r"weights of its LayerNorm layer `body\.1` are not new"),
    ],
    ids=["statistics", "gains"],
)
@pytest.mark.parametrize("copied", [False, True])
def test_normalization_layers_show_that_a_module_was_trained_elsewhere(norm, lr, match, copied):
    module = Normalized(norm)
    trainer(callback := InitCallback(METHOD), max_epochs=0).fit(module, loader())
    assert callback.result is not None  # fresh before
    module = Normalized(norm)
    train_by_hand(module, lr)
    if copied:
        module = copy.deepcopy(module)
    assert_left_alone(module, InitCallback(METHOD), match)


@pytest.mark.parametrize("way", ["callback", "tuner"])
def test_the_learning_rate_finder_does_not_count_as_training(way, tmp_path):
    class Tuned(Module):
        lr = 1e-3

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    module, callback = Tuned(), InitCallback(METHOD)
    finder = [LearningRateFinder(num_training_steps=20)] if way == "callback" else []
    run = trainer(*finder, callback, default_root_dir=tmp_path, max_epochs=8)
    if way == "tuner":
        Tuner(run).lr_find(module, loader(), num_training=20)
        assert callback.result is None
    run.fit(module, loader())
    assert callback.result is not None


def test_nothing_is_stored_on_the_module():
    module, plain = Module(), Module()
    trainer(InitCallback(METHOD)).fit(module, loader())
    trainer().fit(plain, loader())
    for one, other in zip(module.modules(), plain.modules(), strict=True):
        assert sorted(vars(one)) == sorted(vars(other))
