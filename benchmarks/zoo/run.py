"""NIO() on the families of timm and torchvision: what works, and what does not.

`make zoo` goes through all of them, each in a process of its own, and writes its page. It
can be stopped and started again: what is in ``benchmarks/zoo/zoo.jsonl`` is not done again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import inspect
import json
import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import neuroinit as ni
from neuroinit.common.files import write_text
from neuroinit.experiments.vision import timm, torchvision

HERE = Path(__file__).parent
RECORDS = HERE / "zoo.jsonl"
PAGE = HERE.parents[1] / "docs" / "evidence" / "zoo.md"
SIZES = (32, 48, 64, 75, 96, 128, 160, 192, 224, 256)  # the first that the model accepts is used
BATCH, CLASSES, SUB_BATCHES = 4, 10, 2
TIMEOUT = 600  # seconds for one model
MOVEMENT = "The default leaves"
EXPLODES = 2 * math.log(CLASSES)  # a loss

TIMM = [
    "cait_xxs24_224",
    "caformer_s18",
    "coat_lite_tiny",
    "convit_tiny",
    "convnext_atto",
    "convnextv2_atto",
    "deit_tiny_patch16_224",
    "densenet121",
    "dla34",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientformerv2_s0",
    "efficientnet_lite0",
    "efficientvit_b0",
    "efficientvit_m0",
    "ese_vovnet19b_slim_dw",
    "eva02_tiny_patch14_224",
    "fastvit_t8",
    "fbnetc_100",
    "gcresnext26ts",
    "ghostnet_050",
    "gmixer_12_224",
    "gmlp_ti16_224",
    "hardcorenas_a",
    "hiera_tiny_224",
    "hrnet_w18_small",
    "inception_next_atto",
    "inception_v3",
    "lcnet_035",
    "legacy_seresnet18",
    "levit_128s",
    "mambaout_femto",
    "mixer_s32_224",
    "mixnet_s",
    "mnasnet_small",
    "mobilenetv2_035",
    "mobilenetv3_small_050",
    "mobilenetv4_conv_small_035",
    "mobileone_s0",
    "mobilevit_xxs",
    "mobilevitv2_050",
    "nf_regnet_b0",
    "pit_ti_224",
    "poolformer_s12",
    "pvt_v2_b0",
    "regnetx_002",
    "regnety_002",
    "repghostnet_050",
    "repvgg_a0",
    "repvit_m0_9",
    "resmlp_12_224",
    "resnest14d",
    "resnet10t",
    "resnetv2_18",
    "rexnet_100",
    "selecsls42",
    "skresnet18",
    "starnet_s1",
    "swin_tiny_patch4_window7_224",
    "tinynet_e",
    "tiny_vit_5m_224",
    "twins_svt_small",
    "vgg11",
    "visformer_tiny",
    "vit_tiny_patch16_224",
    "xcit_nano_12_p16_224",
]
TORCHVISION = [
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "googlenet",
    "inception_v3",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_x_400mf",
    "regnet_y_400mf",
    "resnet18",
    "resnext50_32x4d",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "swin_t",
    "swin_v2_t",
    "vgg11",
    "vgg11_bn",
    "vit_b_16",
]
OPTIONS: dict[str, dict[str, Any]] = {  # auxiliary heads answer in training mode only
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}


class FusedAttention(TorchFunctionMode):
    """Notices whether ``scaled_dot_product_attention`` is called."""

    seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at the name and go on."""
        name = getattr(func, "__name__", "")
        self.seen |= name in ("scaled_dot_product_attention", "multi_head_attention_forward")
        return func(*args, **(kwargs or {}))


def build(library: str, name: str, size: int) -> nn.Module:
    """A model without pretrained weights for an input size, on ten classes."""
    torch.manual_seed(0)
    if library == "torchvision":
        maker = getattr(torchvision().models, name)
        options = dict(OPTIONS.get(name, {}))
        if name == "vit_b_16":
            options["image_size"] = size
        return maker(weights=None, num_classes=CLASSES, **options)
    library_module = timm()
    options = {"pretrained": False, "num_classes": CLASSES}
    try:
        return library_module.create_model(name, img_size=size, **options)
    except TypeError as error:
        if "img_size" not in str(error):
            raise
        return library_module.create_model(name, **options)


def smallest(library: str, name: str) -> tuple[nn.Module, int]:
    """The model at the smallest input that it can be trained on."""
    failure: Exception | None = None
    for size in SIZES:
        try:
            model = build(library, name, size).train()
            with torch.no_grad():
                model(torch.randn(BATCH // SUB_BATCHES, 3, size, size))
            return build(library, name, size), size
        except Exception as error:  # whatever a model raises for an input that is too small
            failure = error
    raise RuntimeError(f"no input size of {SIZES} works: {failure}") from failure


def batches(size: int, count: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Noise with random labels: enough to see whether every derivative exists."""
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(BATCH, 3, size, size, generator=generator),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


def run(library: str, name: str) -> dict[str, Any]:
    """The default, and what there is to say about it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model, size = smallest(library, name)
    data, method = batches(size), ni.NIO(sub_batches=SUB_BATCHES)
    before = copy.deepcopy(model.state_dict())  # with its versions, which some models ask for
    record: dict[str, Any] = {
        "size": size,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    with FusedAttention() as attention, torch.no_grad():
        model(data[0][0])
    model.load_state_dict(before)
    begun = time.perf_counter()
    result = ni.optimize(model, data, method=method, progress=False)
    after = model.state_dict()
    record |= {
        "seconds": round(time.perf_counter() - begun, 2),
        "steps": len(result.history),
        "scaled": len(result.scales),
        "changed": sum(scale != 1.0 for scale in result.scales.values()),
        "loss_before": result.before and result.before.loss,
        "loss_after": result.after and result.after.loss,
        "norm_before": result.before and result.before.norm,
        "norm_after": result.after and result.after.norm,
        "blocked": len(result.blocked),
        "untouched": all(torch.equal(value, after[key]) for key, value in before.items()),
        "math_kernel": attention.seen and needs_math(model, data),
    }
    if result.blocked:
        filled = ni.NIO(sub_batches=SUB_BATCHES, reinit_zeros=0.01)
        helped = ni.optimize(model, data, method=filled, progress=False)
        record |= {"blocked_filled": len(helped.blocked), "scaled_filled": len(helped.scales)}
    return record


def needs_math(model: nn.Module, data: Any) -> bool:
    """Whether a second-order step fails with the attention kernels that torch would choose."""
    method = ni.NIO(steps=1, sub_batches=SUB_BATCHES, gamma=1.0)
    with mock.patch("neuroinit.model.borrowing.sdpa_kernel", return_value=contextlib.nullcontext()):
        try:
            ni.optimize(model, data, method=method, progress=False)
        except RuntimeError as error:
            return "double backward" in str(error)
    return False


def guarded(library: str, name: str) -> dict[str, Any]:
    """The record of a run in a process of its own; a failure is a record, too."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        try:
            sender.send(run(library, name))
        except Exception as error:
            sender.send({"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]})

    process = context.Process(target=work)
    process.start()
    if receiver.poll(TIMEOUT):
        try:
            found = receiver.recv()
        except EOFError:
            found = {"error": "the process died (out of memory?)"}
    else:
        found = {"error": f"took longer than {TIMEOUT} s"}
        process.kill()
    process.join()
    return {"library": library, "model": name, **found}


def families(library: str) -> Callable[[str], str]:
    """Model name -> the file that defines it."""

    def family(name: str) -> str:
        maker = timm().model_entrypoint(name) if library == "timm" else None
        maker = maker or getattr(torchvision().models, name)
        module = inspect.getmodule(inspect.unwrap(maker))
        return (module.__name__ if module else name).rpartition(".")[2]

    return family


def write_page(records: list[dict[str, Any]]) -> None:
    """``docs/evidence/zoo.md``."""
    works = sum("error" not in record for record in records)
    lines = [
        "# The zoo",
        "",
        "Can the models of timm and torchvision be optimized as they are?",
        f"**{works} of {len(records)} models that we tried run without an exception.** Whether it",
        "helps them is another question, which this page does not answer.",
        "",
        "Every model is given to `NIO(sub_batches=2)` with four images of noise and random labels,",
        "at the smallest input size that it accepts. Gradient norms of thousands and millions come",
        "from BatchNorm over two samples of a few pixels. Real inputs are larger.",
        f"The loss of a uniform guess is {math.log(CLASSES):.2f}.",
        "",
        f"The page is made by `make zoo` with torch {version(torch)}, timm {version(timm())} and",
        f"torchvision {version(torchvision())}. The command continues where it was stopped.",
        "",
    ]
    for library in ("timm", "torchvision"):
        lines += _section(library, [r for r in records if r["library"] == library])
    write_text(PAGE, "\n".join(lines) + "\n")


def _section(library: str, records: list[dict[str, Any]]) -> list[str]:
    family = families(library)
    good = [r for r in records if "error" not in r]
    by_math = [r for r in good if r["math_kernel"]]
    blocked = [r for r in good if r["blocked"]]
    count = len({family(r["model"]) for r in good})
    freed = [r for r in blocked if r["blocked_filled"] == 0]
    lines = [
        f"## {library}",
        "",
        f"{len(good)} of {len(records)} models from {count} families (files of the library) run.",
        _movement(good),
        "",
        f"- *math*, {len(by_math)} in all: attention without a double backward. neuroinit uses",
        "  torch's math kernel instead.",
        f"- *blocked*, {len(blocked)} in all: all-zero gains block the gradient of other tensors.",
        "  The column counts these tensors, without and with `reinit_zeros=0.01`. With it, no",
        f"  tensor is blocked in {len(freed)} of {len(blocked)} models.",
        "",
        "| model | family | input | parameters | tensors changed | norm before, after "
        "| loss before, after | blocked | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in good:
        held = f"{r['blocked']} → {r['blocked_filled']}" if r["blocked"] else ""
        norms, losses = (
            ", ".join(_number(r[f"{what}_{when}"]) for when in ("before", "after"))
            for what in ("norm", "loss")
        )
        size = f"{r['size']} | {r['parameters'] / 1e6:.1f} M"
        math_kernel = "math" if r["math_kernel"] else ""
        lines.append(
            f"| {r['model']} | {family(r['model'])} | {size} | {r['changed']} of {r['scaled']} | "
            f"{norms} | {losses} | {held} | "
            f"{math_kernel} |"
        )
    bad = [r for r in records if "error" in r]
    if bad:
        lines += ["", f"These models of {library} raise an exception:", ""]
        lines += [f"- {r['model']}: {r['error']}" for r in bad]
    return [*lines, "", *_untried(library, {family(r["model"]) for r in records}), ""]


def _movement(records: list[dict[str, Any]]) -> str:
    """How many models are left alone, and what became of the others."""
    changed = [r for r in records if r["changed"]]
    larger = [r for r in changed if r["norm_after"] > 1.01 * r["norm_before"]]
    smaller = [r for r in changed if r["norm_after"] < 0.99 * r["norm_before"]]
    lower = sum(r["loss_after"] < r["loss_before"] for r in changed)
    searched = [r for r in records if not r["changed"] and r["steps"] > 1]
    exploding = [r["model"] for r in searched if r["loss_before"] > EXPLODES]
    faint = [r["model"] for r in searched if r["loss_before"] <= EXPLODES]
    return (
        f"{MOVEMENT} {len(records) - len(changed) - len(searched)} of them alone after one look, "
        f"and changes {len(changed)}. In {len(searched)} it finds a fault that no factor for all "
        f"weights repairs, and leaves them as they are, too: {len(exploding)} have a loss of twice "
        f"a uniform guess's or more{_named(exploding)}, and {len(faint)} hardly any output"
        f"{_named(faint)}. On the held-out batch, the gradient norm of those that it changes falls "
        f"by more than 1% in {len(smaller)} and rises by more than 1% in {len(larger)}; the loss "
        f"is lower in {lower}."
    )


def _named(models: list[str]) -> str:
    return f" ({', '.join(models)})" if models else ""


def _untried(library: str, tried: set[str]) -> list[str]:
    """What there is besides, and why it is not in the list."""
    if library == "torchvision":
        return [
            "Not tried: models for detection, segmentation and video, which are not classifiers,",
            "and quantized models, which have no gradient.",
        ]
    others = sorted(set(timm().list_modules()) - tried)
    return [
        f"Not tried, to save time: {len(others)} files of timm. Their smallest models are larger,",
        "or similar to those above:",
        ", ".join(others) + ".",
    ]


def version(library: Any) -> str:
    """Without the name of the build."""
    return str(library.__version__).partition("+")[0]


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


def main() -> None:
    """Go through what is not done yet, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="models to do again")
    wanted = parser.parse_args().only
    torch.set_num_threads(1)
    timm()
    known = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    done = {(r["library"], r["model"]): r for r in map(json.loads, known)}
    everything = [("timm", n) for n in TIMM] + [("torchvision", n) for n in TORCHVISION]
    todo = [k for k in everything if (k[1] in wanted if wanted else k not in done)]
    for i, (library, name) in enumerate(todo):
        record = guarded(library, name)
        done[library, name] = record
        print(f"{i + 1}/{len(todo)} {json.dumps(record)}", file=sys.stderr, flush=True)
        kept = [done[k] for k in everything if k in done]
        write_text(RECORDS, "".join(json.dumps(r) + "\n" for r in kept))
    write_page([done[k] for k in everything if k in done])


if __name__ == "__main__":
    main()
