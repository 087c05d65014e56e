"""The pages in headless Chromium: layout, sorting, searching, keyboard, dark screens."""

import itertools

import pytest

pytestmark = pytest.mark.browser
BAD = ("error", "warning", "assert")  # kinds of console messages
KINDS = ["result", "comparison", "choice"]


@pytest.fixture
def opened(browser, pages):
    """Opens a page, and fails if it complains or asks for anything on the network."""
    complaints, made = [], []

    def open_(kind="result", width=1280, scheme="light", script=True):
        page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=script,
        )
        made.append(page)
        page.on("console", lambda m: complaints.append(m.text) if m.type in BAD else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "data:")) else complaints.append(r.url),
        )
        page.goto(pages[kind].as_uri())
        return page

    yield open_
    for page in made:
        page.close()
    assert complaints == []


def shown(page, column=0):
    """The cells of a column in the rows that are shown, of the last sortable table."""
    return page.evaluate(
        """column => [...[...document.querySelectorAll(".sortable")].at(-1).tBodies[0].rows]
        .filter(row => !row.hidden)
        .map(row => row.cells[column].dataset.value ?? row.cells[column].textContent)""",
        column,
    )


def luminance(color):
    channels = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen_and_text_is_large_enough(opened, kind, width):
    page = opened(kind, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)"
    )
    charts = page.evaluate(
        """[...document.querySelectorAll("svg[role=img]")].map(svg => ({
          width: svg.getBoundingClientRect().width,
          text: Math.min(...[...svg.querySelectorAll("text")].map(t =>
            parseFloat(getComputedStyle(t).fontSize) * svg.getScreenCTM().a)),
        }))"""
    )
    assert min(chart["width"] for chart in charts) > 300
    assert min(chart["text"] for chart in charts) >= 9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_stand_out(opened, kind, scheme):
    """At least 4.5 to 1 for text and 3 to 1 for marks and lines of charts (WCAG AA)."""
    page = opened(kind, scheme=scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    texts = page.evaluate(
        """[...document.querySelectorAll("p, dt, dd, th, td, a, button, label, figcaption")]
        .map(e => {
          let under = e;
          const clear = "rgba(0, 0, 0, 0)";
          while (under && getComputedStyle(under).backgroundColor === clear)
            under = under.parentElement;
          const style = getComputedStyle(under ?? document.body);
          return [getComputedStyle(e).color, style.backgroundColor];
        })"""
    )
    assert min(contrast(*pair) for pair in {tuple(pair) for pair in texts}) >= 4.5
    marks = page.evaluate(
        """[...document.querySelectorAll("svg[role=img] text")].map(e => getComputedStyle(e).fill)
        .concat([...document.querySelectorAll("svg[role=img] [clip-path]")]
          .filter(e => e.style.stroke.includes("--") && !e.style.stroke.includes("--line"))
          .map(e => getComputedStyle(e).stroke))"""
    )
    assert len(marks) > 10
    assert min(contrast(mark, background) for mark in set(marks)) >= 3


def test_the_typeface_is_one(opened):
    fonts = opened().evaluate(
        """new Set([...document.body.querySelectorAll("*")]
        .map(e => getComputedStyle(e).fontFamily)).size"""
    )
    assert fonts == 1


def test_a_head_sorts_up_down_and_back(opened, exploding):
    page = opened()
    in_order = shown(page)
    head = page.locator("th", has=page.get_by_role("button", name="Scale"))
    seen = []
    for _ in range(3):
        page.get_by_role("button", name="Scale").click()
        seen.append(head.get_attribute("aria-sort"))
        if seen[-1] == "none":
            assert shown(page) == in_order
        else:
            numbers = [float(text) for text in shown(page, 3)]
            assert numbers == sorted(numbers, reverse=seen[-1] == "descending")
    assert seen == ["ascending", "descending", "none"]
    page.get_by_role("button", name="Norm before").click()
    assert page.locator("[aria-sort=ascending]").count() == 1
    names = [layer.name for layer in sorted(exploding.before.layers, key=lambda e: e.norm)]
    assert shown(page) == names


def test_what_is_not_known_comes_last(opened):
    page = opened()
    page.evaluate("document.querySelector('.sortable tbody tr').cells[3].dataset.value = ''")
    for _ in range(2):
        page.get_by_role("button", name="Scale").click()
        assert shown(page, 3)[-1] == ""


def test_names_are_sorted_as_people_do(opened):
    page = opened()
    page.get_by_role("button", name="Tensor").click()
    numbers = [int(name.split(".")[0]) for name in shown(page)]
    assert numbers == sorted(numbers)


def test_search_and_lists_choose_rows(opened):
    page = opened()
    everything = shown(page)
    status = page.get_by_role("status")
    page.get_by_role("searchbox").fill("  WEIGHT ")
    weights = [name for name in everything if "weight" in name]
    assert shown(page) == weights
    assert f"{len(weights)} of {len(everything)}" in status.inner_text()
    page.get_by_label("Layer group").select_option("2")
    assert shown(page) == ["2.weight"]
    page.get_by_role("searchbox").fill("")
    page.get_by_label("Kind").select_option("bias")
    assert shown(page) == ["2.bias"]
    page.get_by_role("searchbox").fill("nothing of that name")
    assert shown(page) == []
    assert status.inner_text().startswith("0 ")


def test_the_keyboard_is_enough(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("button", name="Cosine after").focus()
    outline = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
    assert outline >= 2
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    numbers = [float(text) for text in shown(page, 7)]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_screen_reader_finds_tables_and_charts(opened, width):
    page = opened(width=width)
    snapshot = page.locator("main").aria_snapshot()
    lines = [line.strip() for line in snapshot.splitlines()]
    columns = 8 if width > 700 else 6
    assert sum(line.startswith("- columnheader") for line in lines) == columns + 3
    assert sum(line.startswith("- rowheader") for line in lines) == 10 + 8
    assert sum(line.startswith("- img") for line in lines) == 4


def test_without_a_script_all_rows_are_there_and_the_controls_are_not(opened):
    page = opened(script=False)
    assert page.locator(".sortable tbody tr").count() == 10
    assert not page.locator(".controls").is_visible()


def test_buttons_and_fields_are_large_enough_for_a_finger(opened):
    page = opened(width=390)
    sizes = page.evaluate(
        """[...document.querySelectorAll("main button, main input, main select, summary")]
        .filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect())
        .map(box => [box.width, box.height])"""
    )
    assert min(itertools.chain(*sizes)) >= 24


def test_all_rows_are_printed(opened):
    page = opened()
    page.emulate_media(media="print")
    assert not page.locator(".controls").is_visible()
    assert page.evaluate(
        "(e => e.scrollHeight <= e.clientHeight + 1)(document.querySelector('.tall'))"
    )
