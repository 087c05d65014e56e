"""The Python code that repeats a run."""

from __future__ import annotations

from collections.abc import Mapping

from neuroinit.common.sealed_json import JSON
from neuroinit.methods.nio.method import NIO
from neuroinit.run.results.result import Result
from neuroinit.run.results.text import used_engines

FUNCTIONS = ("gradients_of", "scales_of")  # of these fields, a result has the function's name


def code(result: Result) -> str:
    """Python code that makes the same method and runs it, or applies the saved scales."""
    settings = {k: v for k, v in result.settings.items() if k != "unit"}  # found, not given
    method = settings.pop("method", "NIO")
    name, given = _nearest(settings) if method == "NIO" else (f"ni.{method}", settings)
    parts = {
        key: value if isinstance(value, dict) else {"name": value}
        for key, value in given.items()
        if isinstance(value, dict) or (key in FUNCTIONS and value is not None)
    }
    lines = [f"    {key}={_literal(value)}," for key, value in given.items() if key not in parts]
    lines += [f"    # {key}: {value['name']}(...)" for key, value in parts.items()]
    made = [f"method = {name}(", *lines, ")"] if lines else [f"method = {name}()"]
    engine = "".join(f', engine="{name}"' for name in used_engines(result))
    verified = [
        "# This leaves out the short trainings. With them:",
        "# result = ni.nio_(model, batches, optimizer=optimizer)",
    ]
    return "\n".join(
        [
            "import neuroinit as ni",
            "",
            *made,
            f"result = ni.optimize(model, batches, method=method{engine})",
            "result.apply_(model)",
            *(verified if result.verified else []),
            "",
            "# Or apply saved scales to a model with the same initial values:",
            'ni.load_result("result.json").apply_(model)',
        ]
    )


def _nearest(settings: Mapping[str, JSON]) -> tuple[str, dict[str, JSON]]:
    """The form of NIO that differs in the fewest fields, and these fields."""
    forms = {"ni.NIO": NIO(), "ni.NIO.paper": NIO.paper(), "ni.NIO.reference": NIO.reference()}
    differing = {}
    for name, form in forms.items():
        known = form.settings()
        differing[name] = {k: v for k, v in settings.items() if known.get(k) != v}
    best = min(differing, key=lambda name: len(differing[name]))
    return best, differing[best]


def _literal(value: JSON) -> str:
    return repr(tuple(value)) if isinstance(value, list) else repr(value)
