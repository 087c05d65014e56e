"""JSON with a checksum: damage is found before anything is used."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

CHECKSUM = "checksum"


def sealed(content: dict[str, Any], indent: int | None = None) -> str:
    """The content and its checksum as JSON text, without nan and infinity."""
    return json.dumps({**content, CHECKSUM: _checksum(content)}, indent=indent, allow_nan=False)


def read_sealed(
    path: str | os.PathLike[str], what: str, form: str, optional: bool = False
) -> dict[str, Any]:
    """The content of a file that holds what :func:`sealed` has made.

    Args:
        path: The file.
        what: What it should be, for messages.
        form: What its entry ``"format"`` should be.
        optional: Accept a file without a checksum.

    Raises:
        ValueError: If the file is damaged, or something else.
        OSError: If it cannot be read.
    """
    return unsealed(Path(path).read_bytes(), path, what, form, optional)


def unsealed(
    data: bytes, path: str | os.PathLike[str] | None, what: str, form: str, optional: bool = False
) -> dict[str, Any]:
    """The content of what :func:`sealed` has made; arguments as for :func:`read_sealed`."""
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
