"""
Ranking architectures
=====================

``score`` computes metrics of an untrained network from one batch. Do they predict which network trains best? We test
this on nine small networks.
"""

# %%
# The networks are perceptrons with three widths and three depths.

import matplotlib.pyplot as plt
import torch

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import plain_mlp
from neuroinit.experiments.training.simple_loop import train

data = digits()
batch = data.batches(1, 64, seed=0)[0]
sizes = [(depth, width) for depth in (1, 3, 6) for width in (8, 32, 96)]

scores, accuracies = [], []
for depth, width in sizes:
    torch.manual_seed(0)
    model = plain_mlp(depth, width)
    scores.append(ni.score(model, batch))
    accuracies.append(train(model, data, lr=0.02, momentum=0.9, epochs=3).accuracy)

for (depth, width), score, accuracy in zip(sizes, scores, accuracies, strict=True):
    print(
        f"{depth} layers of {width:3}: accuracy {accuracy:5.1%}   "
        f"gradcosine {score['gradcosine']:.3f}   grad_norm {score['grad_norm']:.3f}   "
        f"parameters {score['parameters']:.0f}"
    )

# %%
# Spearman's correlation compares the order by a score with the order by accuracy. It is 1 for the same order and -1 for
# the reverse order.


def ranks(values: list[float]) -> torch.Tensor:
    return torch.tensor(values).argsort().argsort().double()


def spearman(a: list[float], b: list[float]) -> float:
    return float(torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1])


names = list(scores[0])
found = [spearman([score[name] for score in scores], accuracies) for name in names]
figure, axes = plt.subplots(figsize=(5, 2.8), layout="constrained")
axes.barh(names, found)
axes.axvline(0, color="black", linewidth=0.8)
axes.set(xlabel="Spearman's correlation with accuracy", xlim=(-1, 1))
figure.gca().invert_yaxis()

# %%
# Nine networks and one seed are far too few for a conclusion. The same experiment with 36 networks, three seeds and
# intervals is in :doc:`/evidence/ranking`. Compare a score with the number of parameters before you trust it.
