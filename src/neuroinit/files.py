"""Files are written beside their place first, and then renamed: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in one go.

    Raises:
        ValueError: If its folder does not exist.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise ValueError(f"`{target}` cannot be written: there is no folder `{target.parent}`.")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    """What this process takes away from new files; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
