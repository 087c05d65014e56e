"""JSON: numbers that are not finite as strings, and a checksum that shows damage."""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import Any, NoReturn

CHECKSUM = "checksum"


def plain(value: Any) -> Any:
    """A value of nested dicts, lists and tuples with the strings "nan", "inf" and "-inf".

    JSON has neither these numbers nor tuples.
    """
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def with_numbers(record: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a flat record of which :func:`plain` has made strings."""
    return {k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in record.items()}


def sealed(content: dict[str, Any], indent: int | None = None) -> str:
    """The content and its checksum as JSON text, without nan and infinity."""
    return json.dumps({**content, CHECKSUM: _checksum(content)}, indent=indent, allow_nan=False)


def unsealed(
    data: bytes,
    path: str | os.PathLike[str] | None,
    what: str,
    form: str,
    optional: bool = False,
) -> dict[str, Any]:
    """The content of what :func:`sealed` has made.

    Args:
        data: The bytes of a file.
        path: The file, for messages.
        what: What it should be, for messages.
        form: What its entry ``"format"`` should be.
        optional: Accept content without a checksum.

    Raises:
        ValueError: If the file is damaged, or something else.
    """
    try:
        content = json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`{path}` is no {what}, or is damaged: it is no JSON. {error}") from error
    if not isinstance(content, dict) or content.get("format") != form:
        raise ValueError(
            f"`{path}` is no {what} of this version of neuroinit, or is damaged: expected "
            f"`format = {form!r}`."
        )
    if optional and CHECKSUM not in content:
        return content
    checksum = content.pop(CHECKSUM, None)
    try:
        same = checksum == _checksum(content)
    except ValueError:  # a number that became infinite
        same = False
    if not same:
        raise ValueError(f"The {what} `{path}` is damaged: its checksum is wrong.")
    return content


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"Found `{constant}`.")
