"""One self-contained page about a result; needs ``pip install "neuroinit[report]"``."""

from neuroinit.report.page import page

__all__ = ["page"]
