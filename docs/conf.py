"""Sphinx: `make docs` builds the site in docs/_build/html; a warning is an error."""

import os
import sys
from importlib.metadata import version as installed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "src")]

from neuroinit.experiments.vision import torchvision  # noqa: E402

torchvision()  # first, where its import needs help: trainers import it, too

project = "neuroinit"
author = "The neuroinit authors"
copyright = author
release = version = installed("neuroinit")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "_extensions.mathml",
    "_extensions.public_names",
]
exclude_patterns = ["_build", "tutorials"]
nitpicky = True
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
nitpick_ignore_regex = [
    # other libraries, and types that only signatures name
    (r"py:.*", r"(torch|nn|Tensor|Figure|collections|os|pathlib|matplotlib|pandas|typing)\b.*"),
    (r"py:class", r"(ComputeLoss|LossFunction|OnStep|Cut|Batch|Rule|Targets|Update)"),
    (r"py:class", r"(Axes|OptimizerLike|ParameterFilter|Candidate|Train|lightning\..*)"),
    (r"py:class", r"(Problem|Plan|Engine|Position|Step|JSON|DataFrame|[A-Za-z]+Fields|Row)"),
    (r"py:class", r"_(TensorBoardWriter|WandbRun|MLflowLogger)"),
    (r"py:class", r"neuroinit\.[a-z_]+\.[A-Za-z_.]+"),
]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1e9,
    "capture_repr": ("_repr_html_",),
    "image_scrapers": ("matplotlib", "_extensions.figures.returned_figure"),
    "matplotlib_animations": False,
}

html_theme = "furo"
html_title = "neuroinit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
