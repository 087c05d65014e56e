"""Hugging Face: weights that were loaded or trained are left alone, and fresh ones are not."""

import copy

import pytest
import torch

transformers = pytest.importorskip(
    "transformers", reason='needs pip install "neuroinit[transformers]"'
)
from neuroinit.integrations.transformers import InitCallback  # noqa: E402
from tests.integrations.transformers.parts import METHOD, trainer, vit  # noqa: E402

OLD = int(transformers.__version__.split(".")[0]) < 5


def weights(model):
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def untouched(model, before):
    """Training moves a weight by less than 1e-7: the learning rate is 1e-9."""
    return all(torch.allclose(p, before[n], atol=1e-7) for n, p in model.named_parameters())


@pytest.fixture
def saved(tmp_path):
    model = vit()
    model.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def loaded(folder, **options):
    return transformers.ViTForImageClassification.from_pretrained(folder, **options)


def test_a_second_call_of_train_does_not_initialize_again(tmp_path):
    model, callback = vit(), InitCallback(METHOD)
    run = trainer(model, vit, tmp_path, callback)
    run.train()
    found, before = callback.result, weights(model)
    run.train()
    assert callback.result is found
    assert untouched(model, before)


def test_a_second_trainer_does_not_initialize_again(tmp_path):
    model = vit()
    trainer(model, vit, tmp_path, InitCallback(METHOD)).train()
    before, callback = weights(model), InitCallback(METHOD, force=True)
    trainer(model, vit, tmp_path, callback).train()
    assert callback.result is None
    assert untouched(model, before)


def test_a_callback_that_comes_after_training_does_nothing(tmp_path):
    model, callback = vit(), InitCallback(METHOD)
    run = trainer(model, vit, tmp_path)
    run.train()
    before = weights(model)
    run.add_callback(callback)
    with pytest.warns(UserWarning, match=r"`InitCallback`.*the optimizer has made steps"):
        run.train()
    assert callback.result is None
    assert untouched(model, before)


def test_a_state_of_the_optimizer_before_its_first_step_does_not_matter(tmp_path):
    callback = InitCallback(METHOD)
    trainer(vit(), vit, tmp_path, callback, optim="adagrad").train()
    assert callback.result is not None


@pytest.mark.parametrize("copied", [False, True])
def test_from_pretrained_is_left_alone_with_one_warning(saved, tmp_path, copied):
    model, callback = loaded(saved), InitCallback(METHOD)
    model = copy.deepcopy(model) if copied else model
    before = weights(model)
    run = trainer(model, vit, tmp_path, callback)
    with pytest.warns(UserWarning, match=r"`InitCallback`.*from_pretrained.*force=True"):
        run.train()
    run.train()  # no second warning
    assert callback.result is None
    assert untouched(model, before)


def test_force_initializes_a_loaded_model_once(saved, tmp_path):
    callback = InitCallback(METHOD, force=True)
    run = trainer(loaded(saved), vit, tmp_path, callback)
    run.train()
    found = callback.result
    assert found is not None
    run.train()
    assert callback.result is found


class Plain(torch.nn.Module):
    """No normalization layer tells that it was trained."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Linear(8, 3))

    def forward(self, pixel_values, labels):
        logits = self.body(pixel_values.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_a_state_dict_that_was_loaded_by_hand_is_left_alone(tmp_path):
    model, callback = Plain(), InitCallback(METHOD)
    model.load_state_dict(Plain().state_dict())
    before = weights(model)
    with pytest.warns(UserWarning, match=r"`Plain` was loaded from a checkpoint or a state dict"):
        trainer(model, vit, tmp_path, callback).train()
    assert callback.result is None
    assert untouched(model, before)


@pytest.mark.skipif(OLD, reason="transformers 4 does not tell it from `from_pretrained`")
def test_a_model_from_a_loaded_config_is_initialized(saved, tmp_path):
    config = transformers.AutoConfig.from_pretrained(saved)
    model = transformers.AutoModelForImageClassification.from_config(config)
    callback = InitCallback(METHOD)
    trainer(model, vit, tmp_path, callback).train()
    assert callback.result is not None


@pytest.mark.skipif(OLD, reason="transformers 4 does not say which parameters were loaded")
@pytest.mark.parametrize("way", ["frozen", "include"])
def test_a_fresh_head_of_a_loaded_model_is_initialized(saved, tmp_path, way):
    model = loaded(saved, num_labels=3, ignore_mismatched_sizes=True)
    model.classifier = torch.nn.Linear(16, 3)
    if way == "frozen":
        model.vit.requires_grad_(False)
    patterns = ("classifier.*",) if way == "include" else ("*",)
    callback = InitCallback(steps=3, sub_batches=4, include=patterns)
    trainer(model, vit, tmp_path, callback).train()
    assert sorted(callback.result.scales) == ["classifier.bias", "classifier.weight"]


def test_every_model_of_a_function_is_initialized(tmp_path):
    results = []

    class Keep(transformers.TrainerCallback):
        def on_train_end(self, args, state, control, **kwargs):
            results.append(callback.result)

    callback = InitCallback(METHOD)
    run = transformers.Trainer(
        model_init=vit,
        args=trainer(vit(), vit, tmp_path).args,
        train_dataset=trainer(vit(), vit, tmp_path).train_dataset,
        callbacks=[callback, Keep()],
    )
    run.train()
    run.train()
    assert len({id(result) for result in results}) == 2


def test_a_loaded_model_inside_of_a_lightning_module_is_left_alone(saved):
    pytest.importorskip("lightning")
    from neuroinit.integrations.past import reason_to_leave

    module = torch.nn.Sequential(loaded(saved))
    reason = reason_to_leave(module, METHOD)
    assert "from_pretrained" in reason.text
    assert reason_to_leave(torch.nn.Sequential(vit()), METHOD) is None
