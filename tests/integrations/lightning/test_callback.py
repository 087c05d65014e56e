"""The Lightning callback, with real trainers."""

import csv
import logging
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import neuroinit as ni

pl = pytest.importorskip("lightning.pytorch", reason='needs pip install "neuroinit[lightning]"')
pytest.importorskip("torchmetrics")
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

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


@pytest.mark.parametrize("returns", ["tensor", "dict"])
def test_scales_the_module_in_place(returns):
    module, callback = Module(returns), InitCallback(METHOD)
    before, identities = weights(module), {n: id(p) for n, p in module.named_parameters()}
    trainer(callback).fit(module, loader())
    assert callback.done
    assert len(callback.result.history) == 3
    for name, parameter in module.named_parameters():  # the learning rate is 0
        assert id(parameter) == identities[name]
        assert torch.allclose(parameter, before[name] * callback.result.scales[name])
    assert any(abs(scale - 1) > 0.01 for scale in callback.result.scales.values())


def test_equals_the_plain_call():
    torch.manual_seed(0)
    module = Module()
    torch.manual_seed(5)
    expected = ni.optimize(module.body, loader(), method=METHOD)
    callback = InitCallback(METHOD)
    torch.manual_seed(5)
    trainer(callback).fit(module, loader())
    found = {name.removeprefix("body."): s for name, s in callback.result.scales.items()}
    assert found == pytest.approx(expected.scales)


@pytest.mark.parametrize("own_generator", [False, True])
def test_training_sees_what_it_would_have_seen(own_generator):
    """Order of samples, dropout, metric and lists: only the parameters differ."""
    runs = []
    for callbacks in ([], [InitCallback(METHOD)]):
        module = Module()
        random.seed(3)
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(4) if own_generator else None
        trainer(*callbacks, max_epochs=2).fit(module, loader(generator))
        runs.append((module.seen, torch.get_rng_state(), random.getstate(), len(module.losses)))
    (seen, torch_state, python_state, count), other = runs
    assert other[0] == seen
    assert torch.equal(other[1], torch_state)
    assert other[2:] == (python_state, count)


def test_metrics_reach_the_loggers_and_training_steps_log_nothing_early(tmp_path):
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    callback = InitCallback(METHOD)
    trainer(callback, logger=logger, log_every_n_steps=1).fit(Module(), loader())
    with open(f"{logger.log_dir}/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    cosines = [float(r["neuroinit/cosine"]) for r in rows if r["neuroinit/cosine"]]
    assert cosines == pytest.approx([r.cosine for r in callback.result.history])
    (after,) = [float(r["neuroinit/norm_after"]) for r in rows if r["neuroinit/norm_after"]]
    assert after == pytest.approx(callback.result.after.norm)
    assert len([r for r in rows if r["by hand"]]) == 4  # the steps of training, no others
    assert len([r for r in rows if r["loss"]]) == 4


def levels_of_reasons(caplog):
    """The levels of the lines that say why a model is left alone."""
    return [r.levelname for r in caplog.records if r.name == "neuroinit.integrations.past"]


def test_fast_dev_run_is_left_alone(caplog):
    module, callback = Module(), InitCallback(METHOD)
    before = weights(module)
    with caplog.at_level(logging.INFO, "neuroinit"):
        trainer(callback, fast_dev_run=True).fit(module, loader())
    assert not callback.done
    assert all(torch.equal(p, before[n]) for n, p in module.named_parameters())
    assert levels_of_reasons(caplog) == ["INFO"]


def test_resuming_is_left_alone_and_the_checkpoint_remembers(tmp_path, caplog):
    first = trainer(InitCallback(METHOD))
    first.fit(Module(), loader())
    path = tmp_path / "last.ckpt"
    first.save_checkpoint(path)
    saved = torch.load(path, weights_only=True)
    assert saved["callbacks"]["InitCallback"] == {"done": True}
    module, callback = Module(), InitCallback(METHOD)
    with caplog.at_level(logging.INFO, "neuroinit"):
        trainer(callback, max_epochs=2).fit(module, loader(), ckpt_path=path)
    assert callback.result is None
    assert callback.done
    assert levels_of_reasons(caplog) == ["INFO"]
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, saved["state_dict"][name])


def test_a_second_fit_is_left_alone():
    module, callback = Module(), InitCallback(METHOD)
    trainer(callback).fit(module, loader())
    before = weights(module)
    trainer(callback).fit(module, loader())
    assert all(torch.equal(p, before[n]) for n, p in module.named_parameters())


def test_the_data_module_and_its_batch_hooks_are_used():
    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return loader()

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch[0] * 1000, batch[1]

    torch.manual_seed(0)
    module = Module()
    large = InitCallback(steps=1, sub_batches=4, gamma=1e6)
    trainer(large).fit(module, datamodule=Data())
    assert large.result.history[0].norm > 100


def test_a_step_without_batch_idx():
    class Short(Module):
        def training_step(self, batch):
            return super().training_step(batch, 0)

    callback = InitCallback(METHOD)
    trainer(callback).fit(Short(), loader())
    assert callback.done


def test_a_step_without_loss_is_one_clear_error():
    class Lossless(Module):
        def training_step(self, batch, batch_idx):
            return {"output": 1}

    module = Lossless()
    with pytest.raises(TypeError, match=r"`training_step` should return a loss.*keys \['output'\]"):
        trainer(InitCallback(METHOD)).fit(module, loader())
    assert "log" not in vars(module)


def test_manual_optimization_is_refused():
    module = Module()
    module.automatic_optimization = False
    with pytest.raises(ValueError, match="automatic_optimization"):
        trainer(InitCallback(METHOD)).fit(module, loader())


def test_no_method_is_refused_when_it_is_made():
    with pytest.raises(TypeError, match="Parameter `method`"):
        InitCallback("nio")


@pytest.mark.slow
def test_two_processes_share_one_result(tmp_path):
    """Every rank has other data; without the broadcast their weights would differ."""
    script = tmp_path / "ddp.py"
    script.write_text(
        "from neuroinit.experiments.vision import torchvision; torchvision()\n"
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import torch\n"
        "from tests.integrations.lightning.parts import METHOD, Module, loader, trainer\n"
        "from neuroinit.integrations.lightning import InitCallback\n"
        "torch.manual_seed(0)\n"
        "module, callback = Module(), InitCallback(METHOD)\n"
        "run = trainer(callback, devices=2, strategy='ddp')\n"
        "run.fit(module, loader())\n"
        "total = torch.cat([p.detach().flatten() for p in module.parameters()])\n"
        "both = run.strategy.all_gather(total)\n"
        "assert torch.equal(both[0], both[1]), 'the ranks differ'\n"
        "assert callback.result.scales and run.world_size == 2\n"
        "open(f'{sys.argv[2]}/{run.global_rank}', 'w').close()\n"
        "run.strategy.barrier(); torch.distributed.destroy_process_group()\n"  # a clean exit
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, str(script), str(root), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "0").exists()
    assert (tmp_path / "1").exists()
