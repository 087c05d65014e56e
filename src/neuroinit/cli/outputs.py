"""Files that commands write."""

from __future__ import annotations

from pathlib import Path


def check_folder(out: Path) -> None:
    """Raise before the work begins if the folder of ``--out`` does not exist."""
    if not out.parent.is_dir():
        raise ValueError(f"`--out {out}`: there is no folder `{out.parent}`.")
