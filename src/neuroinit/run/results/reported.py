"""The base of results that have a page for a browser and a table for a notebook."""

from __future__ import annotations

import os
from typing import ClassVar

from neuroinit.common.files import write_text


class Reported:
    """Base class of the results of :func:`optimize`, :func:`compare` and :func:`auto_`."""

    _title: ClassVar[str]  # the default heading of the page

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Write a report for a browser: one HTML file, which needs no network.

        Needs ``pip install "neuroinit[report]"``.

        Args:
            path: The file, for example ``"report.html"``.
            title: The heading of the page; by default one for the kind of result.
        """
        from neuroinit.report import page

        write_text(path, page(self, self._title if title is None else title))

    def _repr_html_(self) -> str:
        """The table that a notebook shows."""
        from neuroinit.report import note

        return note(self)
