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
# * **loss**: a classifier that gives ten classes equal probability has ln 10 = 2.3. A much larger loss, as that of the
#   second network, means confident wrong answers.
# * **gradient norm**: the mean norm of the gradients. If it is too large, SGD diverges.
# * **first layer's** gradient norm: the third network looks healthy in all other columns, but its first layer gets
#   almost no gradient. Only the last bias learns. *Look at all layers before you call a network healthy.*
# * **largest/smallest**: how much the sub-batches differ. A large ratio means that a few samples dominate.
# * **cosine**: how well the sub-batches agree. It is 1/8 for eight orthogonal gradients. The cosine of the third
#   network is as high as that of the first: its output does not depend on its input, and all samples move it towards the
#   class frequencies. A high cosine alone is not a good sign.
#
# Layer by layer
# --------------
# A result of ``optimize`` holds the statistics before and after. The model is not changed.

large = network(6)
result = ni.optimize(large, batches, progress=False)
ni.plots.layers(result)

# %%
# The scales show what was changed. Filled circles are weights, open diamonds are biases.

ni.plots.scales(result)

# %%
# The spread of the gradients over sub-batches, before and after:

ni.plots.batches(result)

# %%
# ``result.report("report.html")`` writes all of this as one page for a browser, with a summary and a table of all
# tensors. A notebook shows a short form. As text:

print(result)
