"""JSON with a checksum, in which numbers that are not finite are strings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
T = TypeVar("T")

CHECKSUM = "checksum"


def plain(value: JSON) -> JSON:
    """Replace floats that are not finite by "nan", "inf" and "-inf", and tuples by lists.

    JSON has neither. ``value`` may be nested dicts, lists and tuples.
    """
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def described_fields(record: DataclassInstance) -> dict[str, JSON]:
    """The fields of a dataclass for JSON: other dataclasses as dicts, functions by their names."""
    return {f.name: _described(getattr(record, f.name)) for f in dataclasses.fields(record)}


def _described(value: object) -> JSON:
    if isinstance(value, (tuple, list)):
        return [_described(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__, **described_fields(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__name__", repr(value))


def read_record(kind: Callable[..., T], values: JSON) -> T:
    """Make a record from its fields; undoes :func:`plain`, for fields that are not containers."""
    fields = of_kind(dict, values)
    return kind(**{k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in fields.items()})


def of_kind(kind: type[T], value: JSON, what: str = "a value") -> T:
    """Return a value that was read, or raise a TypeError if its type is another one."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} should be a {kind.__name__}, found {value!r:.40}")
    return value


def sealed(content: Mapping[str, JSON], indent: int | None = None) -> str:
    """The content and its checksum as JSON text; raises for nan and infinity."""
    return json.dumps({**content, CHECKSUM: _checksum(content)}, indent=indent, allow_nan=False)


def unsealed(
    data: bytes,
    path: str | os.PathLike[str] | None,
    what: str,
    form: str,
    optional: bool = False,
) -> dict[str, JSON]:
    """Read the content of a text that :func:`sealed` returned.

    Args:
        data: The bytes of a file.
        path: The file, for messages.
        what: The kind of file, such as "checkpoint", for messages.
        form: The required value of the entry ``"format"``.
        optional: Accept content without a checksum.

    Raises:
        ValueError: If the file is damaged, or of another kind.
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


def _checksum(content: Mapping[str, JSON]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"Found `{constant}`.")
