"""The base of results that have a page for a browser and a table for a notebook."""

from __future__ import annotations

import os
from typing import ClassVar

from neuroinit.common.files import write_text


class Reported:
    """What :func:`optimize`, :func:`compare` and :func:`auto_` return."""

    _title: ClassVar[str]  # the usual heading of its page

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Write a page about it for a browser: one file, which needs no network.

        Needs ``pip install "neuroinit[report]"``.

        Args:
            path: Where, for example ``"report.html"``.
            title: Its heading; by default, what it is about.
        """
        from neuroinit.report import page

        write_text(path, page(self, self._title if title is None else title))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from neuroinit.report import note

        return note(self)
