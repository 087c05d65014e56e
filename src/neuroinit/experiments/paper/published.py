"""The numbers in the paper's tables."""

from __future__ import annotations

from neuroinit.experiments.paper.grids import AUTHORS, OURS, WITH, WITHOUT

_ROWS = ("Kaiming", "Warmup", "MetaInit", "GradInit", "NIO")


def _cifar_numbers(text: str) -> dict[tuple[str, str, str], str]:
    """From lines of three numbers: the methods with BatchNorm, then without."""
    lines = [line.split() for line in text.strip().splitlines()]
    keys = [(group, row) for group in (WITH, WITHOUT) for row in _ROWS]
    models = ("ResNet-110", "DenseNet-100", "WRN-28-10")
    return {
        (*key, model): value.replace("+-", " ± ")
        for key, line in zip(keys, lines, strict=True)
        for model, value in zip(models, line, strict=True)
    }


# table -> (group, row, column) -> text
PUBLISHED: dict[str, dict[tuple[str, str, str], str]] = {
    "table1": _cifar_numbers("""
        95.53+-0.19 95.75+-0.13 97.27+-0.27
        95.56+-0.12 95.73+-0.27 97.30+-0.18
        95.45+-0.33 95.75+-0.11 97.26+-0.17
        95.81+-0.29 95.77+-0.22 97.34+-0.15
        96.13+-0.16 96.07+-0.18 97.50+-0.21
        94.83+-0.24 94.78+-0.16 97.15+-0.33
        94.75+-0.21 94.86+-0.15 97.20+-0.18
        94.79+-0.15 95.15+-0.19 97.27+-0.25
        95.12+-0.16 95.31+-0.37 97.12+-0.13
        95.27+-0.19 95.62+-0.18 97.35+-0.19
    """),
    "table2": _cifar_numbers("""
        74.54+-0.21 76.58+-0.23 81.40+-0.28
        74.63+-0.33 76.60+-0.32 81.45+-0.25
        74.32+-0.26 76.23+-0.28 81.46+-0.20
        75.40+-0.17 76.14+-0.21 81.35+-0.31
        75.72+-0.15 76.86+-0.26 81.83+-0.20
        73.03+-0.23 71.27+-0.25 79.28+-0.26
        73.10+-0.14 71.50+-0.24 79.58+-0.13
        72.60+-0.17 71.68+-0.37 79.15+-0.24
        72.06+-0.31 71.33+-0.21 79.64+-0.23
        73.17+-0.15 72.79+-0.22 79.76+-0.26
    """),
    "table4": {
        ("", "Kaiming", "ResNet"): "76.43 ± 0.05",
        ("", "FixUp", "ResNet"): "76.0",
        ("", "MetaInit", "ResNet"): "76.0",
        ("", "GradInit", "ResNet"): "76.50 ± 0.05",
        ("", "NIO", "ResNet"): "76.71 ± 0.07",
        ("", "MetaInit", "time"): "0.81 h / 8.5 h",
        ("", "GradInit", "time"): "0.21 h / 8.5 h",
        ("", "NIO", "time"): "0.03 h / 8.5 h",
        ("", "Kaiming", "time"): "- / 8.5 h",
        ("", "FixUp", "time"): "- / 8.5 h",
    },
    "table3": {
        ("", str(d), column): value
        for d, line in (
            (2, "75.56 75.71 75.96 75.72 3.75 5007"),
            (3, "75.60 76.00 75.97 75.76 4.07 6001"),
            (4, "75.58 76.03 75.71 75.88 4.68 7067"),
        )
        for column, value in zip(
            ("r=0", "r=0.2", "r=0.4", "r=0.6", "seconds", "MB"), line.split(), strict=True
        )
    },
    "table5": {
        ("", "w/ warmup", "Kaiming"): "79.4",
        ("", "w/ warmup", "TruncNormal"): "81.3",
        ("", "w/ warmup", "GradInit"): "80.4",
        ("", "w/ warmup", "NIO"): "81.3",
        ("", "w/o warmup", "Kaiming"): "fail",
        ("", "w/o warmup", "TruncNormal"): "fail",
        ("", "w/o warmup", "GradInit"): "79.9",
        ("", "w/o warmup", "NIO"): "80.9",
    },
}


def published(table: str, group: str, row: str, column: str) -> str:
    """The paper's number for a cell, "" if it has none; both forms of NIO have the paper's NIO."""

    def paper(name: str) -> str:
        return "NIO" if name in (OURS, AUTHORS) else name

    return PUBLISHED[table].get((group, paper(row), paper(column)), "")
