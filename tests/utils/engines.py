"""The exact engines by name."""

from neuroinit.gradients.engines import Keep, Stream

ENGINES = {engine.name: engine for engine in (Keep(), Stream())}
