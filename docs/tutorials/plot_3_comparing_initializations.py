"""
Comparing initializations
=========================

``compare`` runs several methods on fresh copies of your model, measures the gradients before and after, and trains
each of them if you pass a training function.
"""

# %%
# A function that makes a model, some batches, and a list of methods is all that is needed. ``None`` stands for the
# model as it is, which here has Kaiming's weights.

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
# The columns are the gradients on a batch that no method has seen, the cost of the initialization in training steps,
# and the score of your training. Every entry is a mean over seeds.
#
# The training losses of all methods, one line for each seed:

ni.plots.curves(table)

# %%
# One quantity of the table, with the spread over seeds:

ni.plots.compare(table, "score")

# %%
# ``table.frame()`` is the same as a pandas data frame, and ``table.report("comparison.html")`` writes a page for a
# browser. For a decision more seeds are needed: two seeds show what the table looks like.

table.frame().set_index(["method", "seed"])[["norm", "cost", "score"]].round(2)
