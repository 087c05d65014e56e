"""The three sizes of the paper's experiments.

``paper`` is Appendix B. ``small`` runs ResNet-20 and a small Swin on a part of CIFAR-10, in about
two hours on two cores. ``smoke`` only shows that everything runs, in about a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuroinit.experiments.data.augmentation import Augmentation
from neuroinit.experiments.training.config import Config


@dataclass(frozen=True)
class Size:
    """The settings of all experiments at one size.

    Args:
        seeds: Number of seeds.
        cifar: Configuration of the convolutional networks of Tables 1 to 3 and Figure 2.
        models: Column of a table -> (model, name of the network in the authors' presets).
        imagenet: Configuration of Table 4.
        swin: Configuration of Table 5, with warmup.
        nio_steps: Steps of NIO; ``None`` for the number of its preset.
        other_steps: Steps of MetaInit and GradInit; ``None`` for the numbers of their papers.
        splits: The numbers of sub-batches D and overlaps r of Table 3.
        figure3: Network of Figure 3.
        batches: Number of batches in its panels (b) and (d).
        samples: Images per batch there.
    """

    seeds: int
    cifar: Config
    models: dict[str, tuple[str, str]]
    imagenet: Config
    swin: Config
    nio_steps: int | None
    other_steps: int | None
    splits: tuple[tuple[int, float], ...]
    figure3: str
    batches: int
    samples: int

    def with_init_batch_size(self, init_batch_size: int | None) -> Size:
        """Change the number of images per step of the methods; ``None`` changes nothing."""
        if init_batch_size is None:
            return self
        cifar, imagenet, swin = (
            replace(config, init_batch_size=init_batch_size)
            for config in (self.cifar, self.imagenet, self.swin)
        )
        return replace(self, cifar=cifar, imagenet=imagenet, swin=swin)


def _adamw(config: Config) -> Config:
    """With the optimizer of Swin."""
    return replace(config, optimizer="adamw", lr=1e-3, weight_decay=0.05, clip=5.0)


_PAPER = Config(data="cifar10", epochs=500, augmentation=Augmentation(crop=4, flip=True, cutout=16))
_SMALL = replace(_PAPER, epochs=4, train_images=4000, test_images=1000, init_batch_size=64)
_SMOKE = Config(
    model="resnet-8",
    epochs=1,
    batch_size=32,
    train_images=128,
    test_images=64,
    augmentation=Augmentation(crop=1, flip=True, cutout=2),
)
_IMAGENET = Config(
    data="folder:imagenet",
    epochs=100,
    batch_size=256,
    schedule="step",
    image_size=224,
    augmentation=Augmentation(crop=0, flip=True),
    init_batch_size=64,
)

SIZES: dict[str, Size] = {
    "paper": Size(
        seeds=4,
        cifar=_PAPER,
        models={
            "ResNet-110": ("resnet-110", "resnet110"),
            "DenseNet-100": ("densenet-bc-100", "densenet100"),
            "WRN-28-10": ("wrn-28-10", "wrn28-10"),
        },
        imagenet=replace(_IMAGENET, model="torchvision:resnet50"),
        swin=_adamw(
            replace(
                _IMAGENET,
                model="timm:swin_tiny_patch4_window7_224",
                epochs=300,
                batch_size=1024,
                schedule="cosine",
                warmup_epochs=20.0,
                label_smoothing=0.1,
                augmentation=Augmentation(crop=0, flip=True, randaugment=True, mixup=0.8),
            )
        ),
        nio_steps=None,
        other_steps=None,
        splits=tuple((d, r) for d in (2, 3, 4) for r in (0.0, 0.2, 0.4, 0.6)),
        figure3="resnet-110",
        batches=100,
        samples=128,
    ),
    "small": Size(
        seeds=3,
        cifar=_SMALL,
        models={"ResNet-20": ("resnet-20", "resnet110")},
        imagenet=replace(_SMALL, model="resnet-20"),
        swin=_adamw(
            replace(
                _SMALL,
                model="swin-cifar",
                epochs=8,
                warmup_epochs=1.0,
                label_smoothing=0.1,
                augmentation=Augmentation(crop=4, flip=True, mixup=0.8),
            )
        ),
        nio_steps=30,
        other_steps=30,
        splits=((2, 0.0), (2, 0.6), (4, 0.2)),
        figure3="resnet-110",
        batches=100,
        samples=16,
    ),
    "smoke": Size(
        seeds=2,
        cifar=_SMOKE,
        models={"ResNet-8": ("resnet-8", "resnet110")},
        imagenet=_SMOKE,
        swin=_adamw(replace(_SMOKE, model="swin-cifar", warmup_epochs=0.5)),
        nio_steps=2,
        other_steps=2,
        splits=((2, 0.0), (4, 0.2)),
        figure3="resnet-8",
        batches=2,
        samples=4,
    ),
}
