"""
Reading the gradient report
===========================

What do the numbers say about a network? We look at three networks: one that works, one whose weights are too large,
and one whose weights are too small.
"""

# %%
# ``gradient_stats`` cuts a batch into eight sub-batches and compares their gradients.

import torch
from torch import nn

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import plain_mlp

data = digits()
batches = data.batches(41, 64, seed=0)


def network(factor: float) -> nn.Module:
    torch.manual_seed(0)
    model = plain_mlp(depth=6, activation=nn.Tanh)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= factor
    return model


print("weights      loss  gradient norm  first layer's  largest/smallest  cosine")
for factor in (1, 6, 0.2):
    stats = ni.gradient_stats(network(factor), batches[0])
    first = stats.layers[0].norm
    print(
        f"times {factor:<4} {stats.loss:6.3g} {stats.norm:14.3g} {first:14.1g} "
        f"{stats.norm_ratio:17.3g} {stats.cosine:7.3f}"
    )

# %%
# How to read a line:
#
# * **loss**: a classifier of ten classes that knows nothing has ln 10 = 2.3. A start far above it, as that of the
#   second network, is sure of wrong answers.
# * **gradient norm**: the mean length of the gradients. If it is too large, SGD diverges.
# * **first layer's** part of it: the third network looks healthy in all other columns, but its first layer gets no
#   gradient. Only the last bias learns. *Look at the layers before you call a network healthy.*
# * **largest/smallest**: how much the sub-batches differ. A large ratio means that a few samples dominate.
# * **cosine**: how well the sub-batches agree. It is 1/8 for eight gradients that have nothing in common. The third
#   network has as high a cosine as the first: its output does not depend on its input, and all samples ask for the same
#   thing, the class frequencies. A high cosine is not a good sign by itself.
#
# Layer by layer
# --------------
# A result of ``optimize`` holds the statistics before and after. The model is not changed.

large = network(6)
result = ni.optimize(large, batches, progress=False)
ni.plots.layers(result)

# %%
# The scales say what was changed. Filled circles are weights, open diamonds are biases.

ni.plots.scales(result)

# %%
# The spread of the gradients over sub-batches, before and after:

ni.plots.batches(result)

# %%
# ``result.report("report.html")`` writes all of this as one page for a browser, with a sentence that sums it up, and
# a table of every tensor. In a notebook, a result shows a short form of it. As text:

print(result)
