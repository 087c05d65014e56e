"""The Hugging Face callback, with real trainers and models made from configs: no download."""

import random

import pytest
import torch

import neuroinit as ni

pytest.importorskip("transformers", reason='needs pip install "neuroinit[transformers]"')
accelerate = pytest.importorskip("accelerate")
from neuroinit.integrations.transformers import InitCallback  # noqa: E402
from tests.integrations.transformers.parts import (  # noqa: E402
    METHOD,
    batches,
    bert,
    gpt2,
    masked_bert,
    model_loss,
    trainer,
    vit,
)
from tests.utils.snapshots import assert_unchanged, snapshot  # noqa: E402

MODELS = [gpt2, bert, masked_bert, vit]


@pytest.mark.parametrize("kind", MODELS)
def test_the_plain_call_with_the_models_own_loss(kind):
    """Default attention, tied embeddings: nothing to configure, and nothing is left behind."""
    torch.manual_seed(0)
    model = kind()
    assert model.config._attn_implementation == "sdpa"
    before = snapshot(model)
    result = ni.optimize(model, batches(kind), method=METHOD, compute_loss=model_loss)
    assert_unchanged(before, model)
    assert set(result.scales) <= {n for n, _ in model.named_parameters()}
    assert any(abs(scale - 1) > 0.01 for scale in result.scales.values())
    result.apply_(model)
    with torch.no_grad():
        assert torch.isfinite(model(**batches(kind)[0]).loss)


def test_tied_embeddings_stay_tied(tmp_path):
    model, callback = gpt2(), InitCallback(METHOD)
    trainer(model, gpt2, tmp_path, callback).train()
    assert model.lm_head.weight is model.transformer.wte.weight
    assert "transformer.wte.weight" in callback.result.scales
    assert "lm_head.weight" not in callback.result.scales


@pytest.mark.parametrize("kind", MODELS)
def test_scales_the_model_in_place(kind, tmp_path):
    torch.manual_seed(0)
    model, callback = kind(), InitCallback(METHOD)
    before = {n: (id(p), p.detach().clone()) for n, p in model.named_parameters()}
    run = trainer(model, kind, tmp_path, callback)
    run.train()
    for name, parameter in model.named_parameters():
        identity, start = before[name]
        assert id(parameter) == identity
        scaled = start * callback.result.scales.get(name, 1.0)
        assert torch.allclose(parameter, scaled, atol=1e-6)
    logged = [entry for entry in run.state.log_history if "neuroinit/cosine" in entry]
    assert [e["neuroinit/cosine"] for e in logged] == [r.cosine for r in callback.result.history]
    assert logged[0]["neuroinit/norm_after"] == callback.result.after.norm


def test_training_sees_what_it_would_have_seen(tmp_path):
    """The order of samples and the random states do not depend on the callback."""
    runs = []
    for callbacks in ([], [InitCallback(METHOD)]):
        torch.manual_seed(0)
        model, seen = vit(), []
        model.register_forward_pre_hook(
            lambda module, args, kwargs, seen=seen: (
                seen.append(kwargs["pixel_values"].sum().item())
                if torch.is_grad_enabled()
                else None
            ),
            with_kwargs=True,
        )
        run = trainer(model, vit, tmp_path, *callbacks, max_steps=8, seed=3)
        run.train()
        runs.append((seen[-8:], torch.get_rng_state(), random.getstate()))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    assert runs[0][2] == runs[1][2]


def test_resuming_is_left_alone(tmp_path):
    torch.manual_seed(0)
    trainer(vit(), vit, tmp_path, save_strategy="steps", save_steps=2).train()
    callback = InitCallback(METHOD)
    run = trainer(vit(), vit, tmp_path, callback, max_steps=6)
    run.train(resume_from_checkpoint=True)
    assert callback.result is None
    assert run.state.global_step == 6


def test_a_loss_of_ones_own(tmp_path):
    def doubled(model, batch):
        return 2 * model(**batch).loss

    plain, twice = InitCallback(METHOD), InitCallback(METHOD, compute_loss=doubled)
    for callback in (plain, twice):
        torch.manual_seed(0)
        trainer(vit(), vit, tmp_path, callback).train()
    first, second = plain.result.before, twice.result.before
    assert second.norm == pytest.approx(2 * first.norm, rel=1e-4)


def test_sharded_parameters_are_refused(tmp_path):
    run = trainer(vit(), vit, tmp_path)
    run.args.fsdp = ["full_shard"]
    with pytest.raises(ValueError, match=r"`fsdp` shards the parameters.*neuroinit.nio_"):
        InitCallback(METHOD).on_train_begin(
            run.args, run.state, run.control, model=run.model, train_dataloader=[]
        )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate_loops_need_no_callback(when, precision):
    """Before or after ``prepare``, mixed precision or not: the same scales."""
    torch.manual_seed(0)
    model, reference = vit(), vit()
    reference.load_state_dict(model.state_dict())
    torch.manual_seed(1)
    expected = ni.optimize(reference, batches(vit), method=METHOD, compute_loss=model_loss)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
    if when == "after":
        model = accelerator.prepare(model)
    forward = model.forward
    torch.manual_seed(1)
    result = ni.optimize(model, batches(vit), method=METHOD, compute_loss=model_loss)
    assert model.forward == forward
    assert result.scales == pytest.approx(expected.scales)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_fabric_wrappers_are_looked_through():
    fabric = pytest.importorskip("lightning.fabric").Fabric(
        accelerator="cpu", precision="bf16-mixed"
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    wrapped = fabric.setup_module(model)
    data = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(4)]
    result = ni.nio_(wrapped, data, steps=3, rule=ni.HeldNorm())
    assert sorted(result.scales) == ["0.bias", "0.weight", "2.bias", "2.weight"]
