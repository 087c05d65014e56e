"""Write the tables and figures of the documents from the records: `make evidence`.

The tables of a page are numbered; each stands after its mark, `<!-- cosine 0 -->`.
"""

from __future__ import annotations

import re

from tools.check_docs import MARKED, ROOT
from tools.figures import FIGURES


def main() -> None:
    """Replace what follows every mark, and draw every figure."""
    for name, make in MARKED.items():
        page = ROOT / name
        text = page.read_text()
        for number, block in enumerate(make().split("\n\n")):
            mark = f"<!-- {page.stem} {number} -->\n\n"
            before, found, after = text.partition(mark)
            if not found:
                raise SystemExit(f"{page.name} lacks the mark {mark.strip()}")
            rest = re.sub(r"\A(\|.*\n)*\n*", "", after)
            text = f"{before}{mark}{block}\n\n{rest}"
        page.write_text(text.rstrip("\n") + "\n")
    for figure, draw in FIGURES.items():
        draw(ROOT / figure)


if __name__ == "__main__":
    main()
