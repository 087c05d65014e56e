"""The runs of the paper's tables."""

import pytest
import torch

from neuroinit.experiments.models import build
from neuroinit.experiments.paper.grids import AUTHORS, GRIDS, OURS, chosen
from neuroinit.experiments.paper.published import published
from neuroinit.experiments.paper.sizes import SIZES
from neuroinit.experiments.training.initializations import learned_method
from neuroinit.methods.nio.presets import PRESETS


@pytest.mark.parametrize("name", GRIDS)
def test_the_papers_runs_are_well_formed(name):
    cells = list(GRIDS[name](SIZES["paper"], None))
    for cell in cells:
        learned_method(cell.config.method)
        with torch.device("meta"):
            build(cell.config.model, 10)
        if name != "figure2":
            assert published(name, *cell.position)
    positions = [cell.position for cell in cells]
    assert len(set(positions)) == len(positions)


def test_the_papers_settings_reach_the_method():
    cells = {cell.position: cell.config for cell in GRIDS["table2"](SIZES["paper"], None)}
    config = cells["w/o BN", AUTHORS, "WRN-28-10"]
    assert (config.model, config.clip, config.epochs) == ("wrn-28-10-nobn", 1.0, 500)
    assert (config.data, config.augmentation.cutout) == ("cifar100", 8)
    method = learned_method(config.method)
    preset = PRESETS["cifar100-wrn28-10-nobn"]
    assert {key: getattr(method, key) for key in preset} == preset
    assert cells["w/ BN", "Warmup", "ResNet-110"].warmup_epochs == 1.0
    assert cells["w/ BN", OURS, "ResNet-110"].clip == 0.0


def test_imagenet_has_the_steps_of_the_papers_footnote():
    table4 = {cell.row: cell.config for cell in GRIDS["table4"](SIZES["paper"], None)}
    assert learned_method(table4["MetaInit"].method).steps == 1000
    assert learned_method(table4["GradInit"].method).steps == 2000
    table5 = {cell.column: cell.config for cell in GRIDS["table5"](SIZES["paper"], None)}
    assert learned_method(table5["GradInit"].method).steps == 2000


def test_cells_are_chosen_by_group_row_and_column():
    cells = list(GRIDS["table1"](SIZES["paper"], None))
    assert chosen(cells, ()) == cells
    (cell,) = chosen(cells, ["w/o BN", "GradInit", "WRN-28-10"])
    assert cell.config.model == "wrn-28-10-nobn"
    assert {c.row for c in chosen(cells, ["MetaInit", "Warmup"])} == {"MetaInit", "Warmup"}


def test_another_batch_size_for_all_experiments():
    size = SIZES["paper"].with_init_batch_size(16)
    for name in GRIDS:
        assert {cell.config.init_batch_size for cell in GRIDS[name](size, None)} == {16}
