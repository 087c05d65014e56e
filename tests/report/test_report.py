"""The report: what is on the page, and what a browser makes of it."""

import re
import shutil
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import neuroinit as ni

pytest.importorskip("bokeh", reason='needs pip install "neuroinit[report]"')
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

BAD = ("error", "warning", "assert")  # kinds of console messages


@pytest.fixture(scope="module")
def result():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        model[0].weight *= 30  # above the bound at first
    batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(9)]
    return ni.optimize(model, batches, method=ni.NIO(steps=8))


@pytest.fixture(scope="module")
def path(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    result.report(path)
    return path


class Text(HTMLParser):
    """What a reader sees, and the addresses that a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.words, self.fetched, self.hidden = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style")
        values = dict(attrs)
        self.fetched += [values[k] for k in ("src", "href") if k in values]

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)


def read(path):
    text = Text()
    text.feed(path.read_text())
    return text, " ".join(" ".join(text.words).split())


def test_the_page_says_what_happened(result, path):
    _, words = read(path)
    assert "NIO looked at 8 batches" in words
    assert "one factor for each of 6 parameter tensors" in words
    assert f"to {result.after.norm:.4g} and GradCosine" in words
    for heading in ("Before and after", "History", "Tensors", "Scales", "Settings"):
        assert heading in words
    assert f"version of torch {torch.__version__}" in words
    assert "min_scale 0.01" in words


def test_the_page_needs_no_network(path):
    text, _ = read(path)
    assert [a for a in text.fetched if not a.startswith("data:")] == []
    assert path.stat().st_size < 2_000_000


def test_the_code_on_the_page_repeats_the_run(result):
    from neuroinit.report import words

    def repeated(method):
        data = {"settings": method.settings(), "engine": "keep"}
        text = words.code(data).split("result =")[0]
        scope = {}
        exec(text, scope)
        return scope["method"]

    for method in (
        ni.NIO(),
        ni.NIO(steps=7, gamma=2.0, exclude=("*bias",), sub_batches="samples"),
        ni.NIO.paper(steps=3),
        ni.NIO.reference(gamma=1.5),
    ):
        assert repeated(method) == method


def test_names_and_titles_are_escaped(result, tmp_path):
    scales = {"<script>alert(1)</script>": 0.5, "</script>": 2.0}
    odd = ni.Result(**{**vars(result), "scales": scales})
    odd.report(tmp_path / "odd.html", title="a <b> & {{body}}")
    page = (tmp_path / "odd.html").read_text()
    assert "<script>alert" not in page
    assert "a &lt;b&gt; &amp;" in page
    assert len(re.findall("</script>", page)) == len(re.findall(r"<script\b", page))


@pytest.mark.parametrize("missing", ["before", "both", "history"])
def test_results_with_gaps(result, tmp_path, missing):
    changes = {"before": {"before": None}, "both": {"before": None, "after": None}}
    changes["history"] = {"history": [], "scales": {}}
    partial = ni.Result(**{**vars(result), **changes[missing]})
    partial.report(tmp_path / "partial.html")
    _, words = read(tmp_path / "partial.html")
    assert "Doing it again" in words


@pytest.mark.parametrize("method", [ni.Kaiming(), ni.LSUV(), ni.GradInit(steps=2)], ids=repr)
def test_other_methods_have_a_page_and_figures(method, tmp_path):
    """They may have no history, or look at other numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(5)]
    result = ni.optimize(model, batches, method=method)
    result.report(tmp_path / "page.html")
    _, words = read(tmp_path / "page.html")
    assert type(method).__name__ in words
    assert "nan" not in words.split("Settings")[0]
    if result.history:
        ni.plots.history(result).savefig(tmp_path / "history.png")


def test_a_saved_result_makes_the_same_page(result, path, tmp_path):
    result.save(tmp_path / "result.json")
    ni.load_result(tmp_path / "result.json").report(tmp_path / "again.html")
    assert read(tmp_path / "again.html")[1] == read(path)[1]


def test_a_missing_folder_is_one_clear_error(result, tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder `.*nowhere`"):
        result.report(tmp_path / "nowhere" / "report.html")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(path, width, scheme):
    """No console message, no request, nothing wider than the screen, charts drawn."""
    sync_api = pytest.importorskip("playwright.sync_api")
    complaints = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda m: complaints.append(m.text) if m.type in BAD else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "data:")) else complaints.append(r.url),
        )
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        wide = page.evaluate("document.documentElement.scrollWidth")
        charts = page.evaluate(
            "[...document.querySelectorAll('.chart')].map(c => c.getBoundingClientRect().height)"
        )
        painted = page.evaluate("getComputedStyle(document.body).backgroundColor")
        browser.close()
    assert complaints == []
    assert wide <= width
    assert len(charts) == 7
    assert min(charts) > 200
    assert painted == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
