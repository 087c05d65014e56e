"""Atomic writes of files: a temporary file in the same folder is flushed, then renamed."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIX = ".tmp"
STALE = 3600.0  # age in seconds from which a temporary file is from a killed process


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A context with a temporary file that replaces ``path`` at the end if there is no error.

    Raises:
        ValueError: If the folder does not exist.
        OSError: If the file cannot be written; the message names it.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise ValueError(f"`{target}` cannot be written: there is no folder `{target.parent}`.")
    remove_temporary_files(target, STALE)
    with _naming(target):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.", suffix=SUFFIX)
        os.close(handle)
    temporary = Path(name)
    try:
        with _naming(target):
            yield temporary
            os.chmod(temporary, 0o666 & ~_umask())
            _flush(temporary)
            os.replace(temporary, target)
            _flush(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically; raises as :func:`replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_temporary_files(path: str | os.PathLike[str], age: float = 0.0) -> None:
    """Remove temporary files of killed processes for a file.

    Args:
        path: The file.
        age: Only remove temporary files of at least this age, in seconds.
    """
    target = Path(path)
    for left in target.parent.glob(f"{_escaped(target.name)}.????????{SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime >= age:
                left.unlink()


_held: set[int] = set()  # handles of the locks of this process


class FileLock:
    """A lock on a path for one run at a time; the system releases it when the process ends.

    Forked processes, such as the workers of a DataLoader, do not inherit it. Windows has no such
    locks; there, nothing is locked.

    Args:
        path: The file to lock. The lock is another file, ``<path>.lock``.

    Raises:
        BlockingIOError: If another run has the lock.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(f"{os.fspath(path)}.lock")
        self._handle: int | None = None
        if os.name == "posix":
            self._handle = self._opened()
            _held.add(self._handle)

    def _opened(self) -> int:
        fcntl = importlib.import_module("fcntl")
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise
            except OSError:  # a file system without locks
                return handle
            if self.path.exists() and os.path.samestat(os.fstat(handle), self.path.stat()):
                return handle
            os.close(handle)  # the previous run has removed this lock file in the meantime

    def close(self) -> None:
        """Release the lock."""
        if self._handle is not None and self._handle in _held:
            _held.remove(self._handle)
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
            os.close(self._handle)


def _drop_locks() -> None:
    """In a forked process: close the handles of the parent's locks, which keeps the locks."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_locks)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A context in which errors of the system, such as a full disk, name the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise type(error)(error.errno, f"`{path}` cannot be written: {reason}") from error


def _flush(path: Path) -> None:
    """Flush a file or a folder to the disk, if the system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _umask() -> int:
    """The permissions that this process removes from new files; it has to be set to be read."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
