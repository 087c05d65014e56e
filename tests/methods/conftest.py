import pytest

from tests.utils.architectures import ZOO

PRECISE = [c for c in ZOO if c.name not in ("float32", "bfloat16")]


@pytest.fixture(params=PRECISE, ids=lambda c: c.name)
def found(request):
    """A case of the zoo, in float64."""
    return request.param
