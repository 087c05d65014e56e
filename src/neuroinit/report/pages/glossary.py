"""The words that a page explains."""

GLOSSARY = (
    (
        "Scale",
        "The method multiplies every parameter tensor by one number, once, before training. "
        "A scale of 1 leaves a tensor unchanged.",
    ),
    (
        "Sub-batch",
        "A batch is cut into parts, the sub-batches. The gradients of the loss on these parts are "
        "compared with each other.",
    ),
    (
        "Gradient norm",
        "The mean norm of the sub-batch gradients. If it is too large, the first training steps "
        "overshoot and the loss can diverge. If it is too small, training starts slowly.",
    ),
    (
        "GradCosine",
        "The mean cosine over all pairs of sub-batch gradients. It is 1 if all gradients point "
        "in the same direction, and 1/8 if eight gradients are orthogonal. Higher is not always "
        "better: exploding gradients, and a network that ignores its input, often have a "
        "GradCosine near 1.",
    ),
    (
        "Agreement",
        "The mean cosine between the gradients of two sub-batches, after subtracting the gradient "
        "for the same inputs with the targets of other samples. It counts only what can be "
        "learned from inputs and targets together. It is 1 if all sub-batches agree, near 0 if "
        "they are unrelated, and below 0 if the network ignores its input (-1/7 with 8 "
        "sub-batches).",
    ),
    (
        "Bound",
        "The gradient norm that NIO(gamma=...) aims at. Steps that began above it are shaded in "
        "the chart. NIO() has no bound; there, steps at which the network explodes are shaded.",
    ),
    (
        "Held-out batch",
        "A batch that no step of the method has used. The numbers before and after are measured "
        "on it.",
    ),
)
