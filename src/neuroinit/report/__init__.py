"""Pages for a browser and tables for a notebook.

Pages need ``pip install "neuroinit[report]"``, notebooks need nothing.
"""

from neuroinit.report.about_choice import choice_page
from neuroinit.report.about_comparison import comparison_page
from neuroinit.report.about_result import result_page
from neuroinit.report.notes import choice_note, comparison_note, result_note

__all__ = [
    "choice_note",
    "choice_page",
    "comparison_note",
    "comparison_page",
    "result_note",
    "result_page",
]
