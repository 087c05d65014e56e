"""A result in plain words, and the code that repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroinit.common.errors import listed
from neuroinit.methods.nio.method import NIO

Data = Mapping[str, Any]

GLOSSARY = (
    (
        "Scale",
        "Every parameter tensor is multiplied by one number, once, before training. That is all "
        "that changes.",
    ),
    (
        "Gradient norm",
        "The batch is cut into sub-batches; this is the mean length of their gradients. Too long, "
        "and the first steps of training overshoot; too short, and nothing moves.",
    ),
    (
        "GradCosine",
        "How well the gradients of the sub-batches agree, from 0 (not at all) to 1 (one "
        "direction). Very high values before can also mean that the gradients explode together.",
    ),
    (
        "Bound",
        "The gradient norm that the method holds. Steps above it, shaded in the charts, bring the "
        "norm down first.",
    ),
)


def number(value: Any) -> str:
    """A number for people; text stays as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.4g}"


def summary(data: Data) -> list[str]:
    """What was done, what came of it, and what to know about it: one sentence or two each."""
    history, scales = data["history"], data["scales"]
    method = data["settings"].get("method", "The method")
    seconds = sum(record["seconds"] for record in history)
    found = [
        f"{method} looked at {len(history)} batches in {seconds:.1f} s and learned one factor for "
        f"each of {len(scales)} parameter tensors ({data['stopped']})."
        if history
        else f"{method} looked at no batch: it draws fresh values and learns nothing."
    ]
    before, after = data["before"], data["after"]
    if before and after:
        where = "a batch that no step has seen" if data["held_out"] else "a batch that was used"
        found.append(
            f"On {where}, the gradient norm went from {number(before['norm'])} to "
            f"{number(after['norm'])} and GradCosine from {number(before['cosine'])} to "
            f"{number(after['cosine'])}; the loss went from {number(before['loss'])} to "
            f"{number(after['loss'])}, before any training."
        )
    elif after:
        found.append(
            "Before, the gradients were not finite: the start was unusable. After, the gradient "
            f"norm is {number(after['norm'])} and the loss {number(after['loss'])}."
        )
    else:
        found.append("There is nothing to compare: the run did not finish, or was not finite.")
    return [*found, *_bound(data), *_range(scales), *_remarks(data)]


def _bound(data: Data) -> list[str]:
    gamma, history = data["settings"].get("gamma"), data["history"]
    if not isinstance(gamma, (int, float)) or not history:
        return []
    above = sum(record["constrained"] for record in history)
    return [
        f"The bound on the gradient norm was {number(gamma)}; {above} of {len(history)} steps "
        "began above it."
    ]


def _range(scales: Mapping[str, float]) -> list[str]:
    if all(scale == 1 for scale in scales.values()):
        return []
    low, high = min(scales, key=scales.__getitem__), max(scales, key=scales.__getitem__)
    return [
        f"The smallest factor is {number(scales[low])} ({low}), the largest {number(scales[high])} "
        f"({high}); 1 leaves a tensor as it was."
    ]


def _remarks(data: Data) -> list[str]:
    found = []
    if data["blocked"]:
        found.append(
            f"All-zero tensors kept the gradient from {listed(data['blocked'])}: these were not "
            "optimized. `reinit_zeros=0.01` gives all-zero tensors a small start."
        )
    if data["drawn"]:
        found.append(f"Given fresh values: {listed(list(data['drawn']))}.")
    return found


def code(data: Data) -> str:
    """Python that repeats the run, or applies its scales without running again."""
    settings = dict(data["settings"])
    method = settings.pop("method", "NIO")
    name, given = _nearest(settings) if method == "NIO" else (f"ni.{method}", settings)
    simple = {k: v for k, v in given.items() if not isinstance(v, dict)}
    lines = [f"    {key}={_literal(value)}," for key, value in simple.items()]
    lines += [f"    # {k}: {v['name']}(...)" for k, v in given.items() if k not in simple]
    made = [f"method = {name}(", *lines, ")"] if lines else [f"method = {name}()"]
    return "\n".join(
        [
            "import neuroinit as ni",
            "",
            *made,
            f'result = ni.optimize(model, batches, method=method, engine="{data["engine"]}")',
            "result.apply_(model)",
            "",
            "# or, without running again, on a model with the same start:",
            'ni.load_result("result.json").apply_(model)',
        ]
    )


def _nearest(settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The form of NIO that differs in the fewest fields, and these fields."""
    forms = {"ni.NIO": NIO(), "ni.NIO.paper": NIO.paper(), "ni.NIO.reference": NIO.reference()}
    differing = {}
    for name, form in forms.items():
        known = form.settings()
        differing[name] = {k: v for k, v in settings.items() if known.get(k) != v}
    best = min(differing, key=lambda name: len(differing[name]))
    return best, differing[best]


def _literal(value: Any) -> str:
    return repr(tuple(value)) if isinstance(value, list) else repr(value)
