"""Hugging Face: the initialization sees the trainer's own loss, and its records are logged."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

transformers = pytest.importorskip(
    "transformers", reason='needs pip install "neuroinit[transformers]"'
)
from neuroinit.integrations.hf_trainer import TrainerLoss  # noqa: E402
from neuroinit.integrations.transformers import InitCallback  # noqa: E402
from tests.integrations.transformers.parts import (  # noqa: E402
    METHOD,
    Data,
    batches,
    gpt2,
    model_loss,
    trainer,
    vit,
)

ROOT = Path(__file__).parents[3]
# older trainers pass no count to a `compute_loss_func`
COUNTS = tuple(map(int, transformers.__version__.split(".")[:2])) >= (4, 50)


def result_of(folder, callback, kind=vit, trainer_class=transformers.Trainer, extra=None, **args):
    """The result of a run whose model and data do not depend on the callback."""
    torch.manual_seed(0)
    model = kind()
    run = trainer_class(
        model=model,
        args=trainer(model, kind, folder, **args).args,
        train_dataset=Data(kind),
        callbacks=[callback],
        **(extra or {}),
    )
    run.train()
    return callback.result


def same(found, expected):
    assert found.scales == pytest.approx(expected.scales, rel=1e-5)
    assert found.before.loss == pytest.approx(expected.before.loss, rel=1e-5)


def smooth(model, batch):
    logits = model(pixel_values=batch["pixel_values"]).logits
    return F.cross_entropy(logits, batch["labels"], label_smoothing=0.4)


def squared(model, batch):
    logits = model(pixel_values=batch["pixel_values"]).logits
    return (logits - F.one_hot(batch["labels"], 3)).square().mean()


def squared_func(outputs, labels, num_items_in_batch=None):
    difference = outputs["logits"] - F.one_hot(labels, 3)
    count = num_items_in_batch if COUNTS else len(labels)
    return difference.square().sum() / 3 / count  # fails without the count


class Squared(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        output = model(**inputs)
        loss = (output.logits - F.one_hot(labels, 3)).square().mean()
        self.log({"by hand": 1.0})
        return (loss, output) if return_outputs else loss


def test_label_smoothing_is_used(tmp_path):
    expected = result_of(tmp_path, InitCallback(METHOD, compute_loss=smooth))
    same(result_of(tmp_path, InitCallback(METHOD), label_smoothing_factor=0.4), expected)


def test_compute_loss_func_is_used(tmp_path):
    expected = result_of(tmp_path, InitCallback(METHOD, compute_loss=squared))
    extra = {"compute_loss_func": squared_func}
    same(result_of(tmp_path, InitCallback(METHOD), extra=extra), expected)


def test_an_overridden_compute_loss_is_used_and_logs_nothing_early(tmp_path):
    logged = []

    class Watched(Squared):
        def log(self, logs, *args, **kwargs):
            logged.extend(key for key in logs if key == "by hand")
            super().log(logs, *args, **kwargs)

    expected = result_of(tmp_path, InitCallback(METHOD, compute_loss=squared))
    same(result_of(tmp_path, InitCallback(METHOD), trainer_class=Watched), expected)
    assert len(logged) == 4  # the steps of training


def test_a_loss_that_is_passed_comes_first(tmp_path):
    expected = result_of(tmp_path, InitCallback(METHOD, compute_loss=smooth))
    callback = InitCallback(METHOD, compute_loss=smooth)
    same(result_of(tmp_path, callback, trainer_class=Squared), expected)


def counted(model, batch):
    """What the trainer makes of GPT-2: the sum over 11 predictions divided by 12 labels."""
    named = inspect.signature(model.forward).parameters.values()
    told = any(p.kind is p.VAR_KEYWORD for p in named)  # not in old versions of transformers
    count = {"num_items_in_batch": batch["labels"].numel()} if told else {}
    return model(**batch, **count).loss


@pytest.mark.parametrize(("kind", "loss"), [(vit, model_loss), (gpt2, counted)])
def test_the_default_is_the_loss_of_training(tmp_path, kind, loss):
    expected = result_of(tmp_path, InitCallback(METHOD, compute_loss=loss), kind)
    same(result_of(tmp_path, InitCallback(METHOD), kind), expected)


def test_prepared_inputs_are_used(tmp_path):
    class Prepared(transformers.Trainer):
        def _prepare_inputs(self, inputs):
            inputs = super()._prepare_inputs(inputs)
            return {**inputs, "pixel_values": 1000 * inputs["pixel_values"]}

    class Large(transformers.Trainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            inputs = {**inputs, "pixel_values": 1000 * inputs["pixel_values"]}
            return super().compute_loss(model, inputs, *args, **kwargs)

    expected = result_of(tmp_path, InitCallback(METHOD), trainer_class=Large)
    same(result_of(tmp_path, InitCallback(METHOD), trainer_class=Prepared), expected)


def test_the_batch_keeps_its_labels(tmp_path):
    """The trainer takes them out of what it gets."""
    run, batch = trainer(vit(), vit, tmp_path, label_smoothing_factor=0.4), batches(vit)[0]
    first, second = (TrainerLoss(run)(run.model, batch) for _ in range(2))
    assert first == second
    assert sorted(batch) == ["labels", "pixel_values"]


def test_a_training_step_of_ones_own_is_said(tmp_path):
    class Doubled(transformers.Trainer):
        def training_step(self, *args, **kwargs):
            return 2 * super().training_step(*args, **kwargs)

    with pytest.warns(UserWarning, match=r"`Doubled` overrides `training_step`.*compute_loss="):
        result_of(tmp_path, InitCallback(METHOD), trainer_class=Doubled)
    result_of(tmp_path, InitCallback(METHOD, compute_loss=smooth), trainer_class=Doubled)


def test_a_loss_that_is_no_tensor_is_one_clear_error(tmp_path):
    class Pair(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return 1.0, None

    with pytest.raises(TypeError, match=r"`Pair.compute_loss` should return a tensor.*tuple"):
        result_of(tmp_path, InitCallback(METHOD), trainer_class=Pair)


def test_a_call_without_a_trainer_is_refused(tmp_path):
    run = trainer(vit(), vit, tmp_path)
    with pytest.raises(ValueError, match=r"no Trainer.*compute_loss="):
        InitCallback(METHOD).on_train_begin(
            run.args, run.state, run.control, model=run.model, train_dataloader=[]
        )


class Recorder(transformers.TrainerCallback):
    def __init__(self):
        self.logged = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logged.append((state.global_step, dict(logs)))


@pytest.mark.parametrize("first", [True, False])
def test_records_reach_the_other_callbacks(tmp_path, first):
    """Every record has its own step, as loggers draw it; the trainer's own step stays 0."""
    recorder, callback = Recorder(), InitCallback(METHOD)
    callbacks = (recorder, callback) if first else (callback, recorder)
    run = trainer(vit(), vit, tmp_path, *callbacks)
    run.train()
    found = [(step, logs) for step, logs in recorder.logged if "neuroinit/cosine" in logs]
    history = callback.result.history
    assert [step for step, _ in found] == [0, 1, 2]
    assert [logs["neuroinit/cosine"] for _, logs in found] == [r.cosine for r in history]
    assert found[0][1]["neuroinit/norm_after"] == callback.result.after.norm
    assert [step for step, logs in recorder.logged if "loss" in logs] == [1, 2, 3, 4]
    kept = [entry for entry in run.state.log_history if "neuroinit/cosine" in entry]
    assert [(e["step"], e["neuroinit/step"]) for e in kept] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.slow
def test_two_processes_share_one_result(tmp_path):
    """Every rank has other data; the first computes, with the loss of its own batches."""
    script = tmp_path / "two.py"
    script.write_text(
        "from neuroinit.experiments.vision import torchvision; torchvision()\n"
        "import sys, math, torch\n"
        "import torch.distributed as dist\n"
        "from neuroinit.integrations.past import Event, note\n"
        "from neuroinit.integrations.transformers import InitCallback\n"
        "from tests.integrations.transformers.parts import METHOD, gpt2, trainer\n"
        "torch.manual_seed(0)\n"
        "callback, options = InitCallback(METHOD), {'per_device_train_batch_size': 8}\n"
        "model = gpt2()\n"
        "trainer(model, gpt2, sys.argv[1], callback, **options).train()\n"
        "total = torch.cat([p.detach().flatten() for p in model.parameters()])\n"
        "both = [torch.empty_like(total) for _ in range(2)]\n"
        "dist.all_gather(both, total)\n"
        "assert torch.equal(both[0], both[1]), 'the ranks differ'\n"
        "assert abs(callback.result.before.loss - math.log(50)) < 0.5, callback.result.before\n"
        "loaded, rank = gpt2(), dist.get_rank()\n"
        "if rank == 0: note(loaded, Event.LOADED)\n"
        "callback = InitCallback(METHOD)\n"
        "trainer(loaded, gpt2, sys.argv[1], callback, **options).train()\n"
        "assert callback.result is None, 'the first process decides for all'\n"
        "open(f'{sys.argv[1]}/done{rank}', 'w').close()\n"
        "dist.barrier(); dist.destroy_process_group()\n"  # gloo's threads would abort the exit
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    root = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [*launch, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=root)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "done0").exists()
    assert (tmp_path / "done1").exists()
