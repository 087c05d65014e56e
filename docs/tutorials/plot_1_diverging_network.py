"""
A network without normalization that diverges
=============================================

A deep residual network without BatchNorm diverges with Kaiming initialization. After one call it trains.
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
# How large are its loss and its gradient on one batch?

batches = data.batches(41, 64, seed=0)
stats = ni.gradient_stats(model, batches[0])
print(f"loss {stats.loss:.3g}, gradient norm {stats.norm:.3g}")

# %%
# A network that gives ten classes equal probability has a loss of ln 10 = 2.3. The loss of this one is far larger, and
# its gradient is huge. Training diverges at any usual learning rate.
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
# The loss of the first network starts in the hundreds and is not finite after a few steps, where the figure has a cross.
# Losses above 1000 are drawn at 1000.

figure, axes = ni.plots.figure(1, width=5)
colors = (ni.plots.BEFORE, ni.plots.AFTER)
for (name, run), color in zip(runs.items(), colors, strict=True):
    ni.plots.draw_losses(axes[0, 0], [run.losses], color, name, ceiling=1e3)
figure
