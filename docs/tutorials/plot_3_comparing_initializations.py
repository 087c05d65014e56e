"""
Comparing initializations
=========================

``compare`` runs several methods on fresh copies of your model, measures the gradients before and after, and trains
each of them if you pass a training function.
"""

# %%
# You need a function that makes a model, some batches, and a list of methods. ``None`` leaves the model as it is, here
# with Kaiming weights.

from torch import nn

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import kaiming, residual_mlp
from neuroinit.experiments.training.simple_loop import train as train_classifier

data = digits()


def make_model() -> nn.Module:
    return kaiming(residual_mlp(blocks=8, width=32))


def train(model: nn.Module) -> tuple[float, list[float]]:
    """Returns a score, and the losses for the figure."""
    run = train_classifier(model, data, lr=0.1, epochs=2)
    return run.accuracy, run.losses


table = ni.compare(
    make_model,
    data.batches(24, 64, seed=0),
    [None, ni.TruncNormal(), ni.LSUV(), ni.NIO()],
    seeds=[0, 1],
    train=train,
    progress=False,
)

# %%
# The columns are gradient statistics on a batch that no method has used, the cost of the initialization in training
# steps, and the score of your training. Every entry is a mean over seeds.
#
# The training losses of all methods, one line for each seed:

ni.plots.curves(table)

# %%
# One quantity of the table, with the spread over seeds:

ni.plots.compare(table, "score")

# %%
# ``table.frame()`` gives the table as a pandas data frame, and ``table.report("comparison.html")`` writes a page for a
# browser. Two seeds are too few for a decision.

table.frame().set_index(["method", "seed"])[["norm", "cost", "score"]].round(2)
