"""Pages for a browser and tables for a notebook; internal, results have the public methods.

Pages need ``pip install "neuroinit[report]"``, notebooks need nothing.
"""

from functools import singledispatch

from neuroinit.choose.auto_result import AutoResult
from neuroinit.choose.comparison_table import Comparison
from neuroinit.report.notes import choice_note, comparison_note, result_note
from neuroinit.report.pages.choice import choice_page
from neuroinit.report.pages.comparison import comparison_page
from neuroinit.report.pages.result import result_page
from neuroinit.run.results.result import Result

__all__ = ["note", "page"]


@singledispatch
def page(shown: object, title: str) -> str:
    """A page for a browser, as HTML.

    Args:
        shown: A result, a comparison, or a choice.
        title: Its heading.
    """
    raise TypeError(f"There is no page about a `{type(shown).__name__}`.")


@singledispatch
def note(shown: object) -> str:
    """A result, a comparison or a choice for a notebook, as HTML."""
    raise TypeError(f"There is no note about a `{type(shown).__name__}`.")


page.register(Result, result_page)
page.register(Comparison, comparison_page)
page.register(AutoResult, choice_page)
note.register(Result, result_note)
note.register(Comparison, comparison_note)
note.register(AutoResult, choice_note)
