"""``neuroinit`` with an ``NIO`` that moves every network, for tests of loops, engines and ranks.

The default leaves a network that works alone, so that nothing could differ between two ways to
compute the same. Here ``NIO(...)`` and ``nio_(...)`` bring the gradient norm to ``gamma`` instead.
"""

from types import SimpleNamespace

import neuroinit


class _Moving:
    paper, reference = neuroinit.NIO.paper, neuroinit.NIO.reference

    def __call__(self, **fields):
        return neuroinit.NIO(**{"rule": neuroinit.HeldNorm(), **fields})


def _moving(*args, **options):
    return neuroinit.nio_(*args, **{"rule": neuroinit.HeldNorm(), **options})


_public = {name: getattr(neuroinit, name) for name in dir(neuroinit)}
ni = SimpleNamespace(**{**_public, "NIO": _Moving(), "nio_": _moving})
