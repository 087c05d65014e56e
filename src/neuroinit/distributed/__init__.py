"""Several processes that share the work. :func:`alone` is public."""

from neuroinit.distributed.ranks import alone

__all__ = ["alone"]


def __dir__() -> list[str]:
    return __all__
