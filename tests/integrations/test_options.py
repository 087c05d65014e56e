"""Options of the callbacks: typed, shown, checked when the callback is made, and passed on."""

import inspect
from typing import get_type_hints

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.utils.data import DataLoader

import neuroinit as ni
from neuroinit.integrations.options import CallbackOptions, peak_rate
from neuroinit.methods.nio.fields import NIOFields
from neuroinit.run.options import OptimizeOptions

pytest.importorskip("lightning")
pytest.importorskip("torchmetrics")
pytest.importorskip("transformers")
from neuroinit.integrations import lightning, transformers
from tests.integrations.lightning import parts as lightning_parts
from tests.integrations.transformers import parts as transformers_parts

CALLBACKS = [lightning.InitCallback, transformers.InitCallback]


def test_the_options_are_those_of_the_method_and_of_optimize():
    """The trainer has the data and the loss."""
    expected = {**get_type_hints(NIOFields), **get_type_hints(OptimizeOptions)}
    for given_by_the_trainer in ("compute_loss", "example"):
        del expected[given_by_the_trainer]
    assert get_type_hints(CallbackOptions) == expected


@pytest.mark.parametrize("callback", CALLBACKS)
def test_help_shows_every_option_with_its_default(callback):
    shown = inspect.signature(callback).parameters
    assert set(get_type_hints(CallbackOptions)) <= set(shown)
    assert shown["steps"].default == ni.NIO().steps
    assert shown["engine"].default == "auto"
    assert shown["force"].default is False
    assert all(p.kind is not p.VAR_KEYWORD for p in shown.values())


@pytest.mark.parametrize("callback", CALLBACKS)
def test_options_make_the_method(callback):
    assert callback(steps=20, gamma=2.0).method == ni.NIO(steps=20, gamma=2.0)
    assert callback(method=ni.GradInit(steps=5)).method == ni.GradInit(steps=5)
    assert callback().method == ni.NIO()


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_method_and_its_fields_are_one_clear_error(callback):
    with pytest.raises(TypeError, match=r"`method` and `gamma`, `steps`.*not both"):
        callback(method=ni.NIO(), steps=20, gamma=2.0)
    assert callback(method=ni.NIO(), engine="stream").settings.options == {"engine": "stream"}


@pytest.mark.parametrize(
    "option",
    [
        {"engine": "fast"},
        {"microbatch": 0},
        {"memory_limit": 0},
        {"autocast": torch.float16},
        {"on_step": 3},
        {"checkpoint_every": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("callback", CALLBACKS)
def test_bad_options_are_refused_before_the_fit(callback, option):
    with pytest.raises((TypeError, ValueError), match=f"`{next(iter(option))}"):
        callback(**option)


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_method_is_not_verified(callback):
    with pytest.raises(TypeError, match=r"`verify = True` is for NIO.*without `method`"):
        callback(method=ni.NIO(), verify=True)
    with pytest.raises(ValueError, match=r"`family = 'adam'`.*Pass `rate`"):
        callback(family="adam")


@pytest.mark.parametrize("callback", CALLBACKS)
def test_wrong_options_are_refused_when_the_callback_is_made(callback):
    with pytest.raises(TypeError, match=r"`stepz` is not an argument of `InitCallback`.*steps"):
        callback(stepz=3)
    with pytest.raises(ValueError, match="Parameter `steps`"):
        callback(steps=0)
    with pytest.raises(TypeError, match="`verify` should be `True`, `False` or `None`"):
        callback(verify="no")


@pytest.mark.filterwarnings(*lightning_parts.QUIET)
def test_lightning_passes_the_options_on():
    seen = []
    callback = lightning.InitCallback(
        steps=2, gamma=1.0, sub_batches=4, engine="stream", on_step=seen.append
    )
    lightning_parts.trainer(callback).fit(lightning_parts.Module(), lightning_parts.loader())
    assert callback.result.engine == "stream"
    assert len(seen) == 2


def test_hugging_face_passes_the_options_on(tmp_path):
    seen = []
    callback = transformers.InitCallback(
        steps=2, gamma=1.0, sub_batches=2, microbatch=4, engine="stream", on_step=seen.append
    )
    vit = transformers_parts.vit
    transformers_parts.trainer(vit(), vit, tmp_path, callback).train()
    assert callback.result.engine == "stream"
    assert len(seen) == 2


# -- the trainer's optimizer ------------------------------------------------------------------


def sgd(**options):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], **options)


def warming_up(optimizer):
    LambdaLR(optimizer, lambda step: min(1.0, step / 10))  # the rate is 0 now
    return optimizer


def one_cycle(optimizer):
    OneCycleLR(optimizer, max_lr=0.5, total_steps=10, cycle_momentum=False)
    return optimizer


@pytest.mark.parametrize(
    ("optimizers", "rate"),
    [
        ([sgd(lr=0.1, momentum=0.9)], 1.0),
        ([warming_up(sgd(lr=0.1))], 0.1),
        ([one_cycle(sgd(lr=0.1))], 0.5),
        ([sgd(lr=0.0)], None),
        ([torch.optim.Adam([torch.zeros(1, requires_grad=True)])], 0.001),
        ([sgd(lr=0.1), sgd(lr=0.2)], None),
        ([], None),
    ],
    ids=["momentum", "warmup", "one cycle", "zero", "Adam", "two", "none"],
)
def test_the_rate_is_the_highest_of_the_schedule(optimizers, rate):
    before = [[dict(group) for group in o.param_groups] for o in optimizers]
    assert peak_rate(optimizers) == (None if rate is None else pytest.approx(rate))
    assert [[dict(group) for group in o.param_groups] for o in optimizers] == before


class Trained(lightning_parts.Module):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.5)


@pytest.mark.filterwarnings(*lightning_parts.QUIET)
@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({"steps": 2, "sub_batches": 4}, 0.1),
        ({"steps": 2, "sub_batches": 4, "rate": 7.0}, 7.0),
        ({"method": ni.NIO(steps=2, sub_batches=4)}, None),
    ],
    ids=["fields", "own rate", "method"],
)
def test_lightning_passes_the_rate_of_its_optimizer(options, rate):
    callback = lightning.InitCallback(**options)
    lightning_parts.trainer(callback).fit(Trained(), lightning_parts.loader())
    assert callback.result.settings["rate"] == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(("optim", "family"), [("sgd", "sgd"), ("adamw_torch", "adam")])
def test_hugging_face_passes_the_rate_of_its_optimizer(tmp_path, optim, family):
    callback = transformers.InitCallback(steps=2, sub_batches=4)
    transformers_parts.trainer(
        transformers_parts.vit(),
        transformers_parts.vit,
        tmp_path,
        callback,
        optim=optim,
        learning_rate=0.02,
        warmup_steps=2,
    ).train()
    assert callback.result.settings["rate"] == pytest.approx(0.02)
    assert callback.result.settings["family"] == family


# -- small batches ----------------------------------------------------------------------------


@pytest.mark.filterwarnings(*lightning_parts.QUIET)
def test_small_batches_do_not_end_a_fit():
    callback = lightning.InitCallback(steps=2, gamma=1.0)
    small = DataLoader(lightning_parts.loader().dataset, batch_size=4)
    with pytest.warns(UserWarning, match="sub_batches"):
        lightning_parts.trainer(callback).fit(lightning_parts.Module(), small)
    assert len(callback.result.history) == 2


@pytest.mark.filterwarnings("ignore:.*sub_batches")
def test_small_batches_do_not_end_a_training(tmp_path):
    callback, vit = transformers.InitCallback(steps=2, gamma=1.0), transformers_parts.vit
    settings = {"per_device_train_batch_size": 4}
    transformers_parts.trainer(vit(), vit, tmp_path, callback, **settings).train()
    assert len(callback.result.history) == 2


# -- verification -----------------------------------------------------------------------------


class Exploding(lightning_parts.Module):
    """Its optimizer warms up: the rate is 0 when the fit starts."""

    def configure_optimizers(self):
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        schedule = LambdaLR(self.optimizer, lambda step: min(1.0, step / 10))
        return {"optimizer": self.optimizer, "lr_scheduler": schedule}


def exploding():
    torch.manual_seed(0)
    module = Exploding(dropout=0.0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= 10
    return module


@pytest.mark.filterwarnings(*lightning_parts.QUIET)
def test_lightning_verifies_at_the_peak_of_the_schedule():
    rates = []

    class Looks(lightning.Callback):
        def on_train_start(self, trainer, module):
            rates.append([group["lr"] for group in module.optimizer.param_groups])
            rates.append(len(module.optimizer.state))

    callback = lightning.InitCallback()
    module = exploding()
    lightning_parts.trainer(callback, Looks()).fit(module, lightning_parts.loader())
    assert callback.result.verified.startswith("applied")
    assert rates == [[0.0], 0]
    unverified = lightning.InitCallback(verify=False)
    lightning_parts.trainer(unverified).fit(exploding(), lightning_parts.loader())
    assert unverified.result.verified == ""
    assert min(unverified.result.scales.values()) < 1


@pytest.mark.filterwarnings(*lightning_parts.QUIET)
def test_without_a_learning_rate_one_line_is_logged_and_nothing_is_verified(caplog):
    caplog.set_level("INFO", logger="neuroinit")
    callback = lightning.InitCallback()
    module = lightning_parts.Module()  # its learning rate is 0
    lightning_parts.trainer(callback).fit(module, lightning_parts.loader())
    assert callback.result.verified == ""
    logged = [r for r in caplog.records if r.name == "neuroinit.integrations.options"]
    assert [r.levelname for r in logged] == ["INFO"]
    callback = lightning.InitCallback(verify=True)
    with pytest.raises(ValueError, match="Short trainings need one optimizer with a learning rate"):
        lightning_parts.trainer(callback).fit(lightning_parts.Module(), lightning_parts.loader())


def test_hugging_face_verifies(tmp_path):
    vit = transformers_parts.vit
    torch.manual_seed(0)
    model = vit()
    with torch.no_grad():
        model.classifier.weight *= 1e5
    callback = transformers.InitCallback()
    trainer = transformers_parts.trainer(model, vit, tmp_path, callback, learning_rate=0.001)
    trainer.train()
    assert callback.result.verified.startswith("applied")
    assert min(callback.result.scales.values()) < 1
