"""Records as a pandas data frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from neuroinit.common.errors import needs_extra
from neuroinit.gradients.statistics.gradient_stats import Record

if TYPE_CHECKING:
    from pandas import DataFrame


def records_frame(
    records: Iterable[Record], kind: type[Record], index: str | None = None
) -> DataFrame:
    """One row for each record, one column for each field.

    Args:
        records: All of the same kind; there may be none.
        kind: Their class.
        index: The field that is the index; by default rows are numbered.

    Returns:
        A ``pandas.DataFrame``.
    """
    with needs_extra("pandas"):
        import pandas
    columns = [field.name for field in fields(kind)]
    found = pandas.DataFrame([dict(record) for record in records], columns=columns)
    return found if index is None else found.set_index(index)
