"""
A network without normalization that diverges
=============================================

A deep residual network without BatchNorm explodes from Kaiming initialization. One call makes it train.
"""

# %%
# The network
# -----------
# Twelve residual blocks of convolutions, and no normalization. We train it on the 8x8 digits of scikit-learn
# with plain SGD.

import copy

import torch

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import kaiming, residual_cnn
from neuroinit.experiments.training.simple_loop import train

torch.manual_seed(0)
data = digits()
model = kaiming(residual_cnn(12))

# %%
# How large is its gradient? We look at one batch.

batches = data.batches(41, 64, seed=0)
stats = ni.gradient_stats(model, batches[0])
print(f"loss {stats.loss:.3g}, gradient norm {stats.norm:.3g}")

# %%
# A network that knows nothing about ten classes has a loss of ln 10 = 2.3. This one is far above that, and its
# gradient is huge. No usual learning rate fits.
#
# The call
# --------
# ``nio_`` finds one factor for all weights. We keep a copy of the model to compare with.

optimized = copy.deepcopy(model)
result = ni.nio_(optimized, batches, progress=False)
print(result)

# %%
# The history of the run shows how the factor was found, with one batch per step.

ni.plots.history(result)

# %%
# Training
# --------
# Both models now train with the same data and the same learning rate.

runs = {
    "Kaiming": train(model, data, lr=0.1, epochs=3),
    "Kaiming, then nio_": train(optimized, data, lr=0.1, epochs=3),
}
for name, run in runs.items():
    print(f"{name}:", "diverged" if run.diverged else f"test accuracy {run.accuracy:.1%}")

# %%
# The loss of the first network begins in the hundreds and is no longer finite after a few steps. A cross marks that.
# Losses above 1000 are drawn at 1000.

figure, axes = ni.plots.figure(1, width=5)
colors = (ni.plots.BEFORE, ni.plots.AFTER)
for (name, run), color in zip(runs.items(), colors, strict=True):
    ni.plots.draw_losses(axes[0, 0], [run.losses], color, name, ceiling=1e3)
figure
