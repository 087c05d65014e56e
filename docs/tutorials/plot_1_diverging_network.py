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

import matplotlib.pyplot as plt
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
# The history of the run shows how the factor was found: one batch a step.

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
# The loss of the first network begins in the hundreds and is no longer finite after a few steps.

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for name, run in runs.items():
    axes.semilogy(run.losses, label=name, marker="x" if run.diverged else None)
axes.set(xlabel="training step", ylabel="training loss", ylim=(None, 1e3))
legend = axes.legend()
