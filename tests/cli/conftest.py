import pytest

import neuroinit as ni


@pytest.fixture
def saved(small_model, digits_like, tmp_path):
    """A result in a file."""
    path = tmp_path / "result.json"
    ni.optimize(small_model, digits_like, method=ni.NIO(steps=2, rule=ni.HeldNorm())).save(path)
    return path
