"""What the callbacks share."""

import pytest

from neuroinit.integrations.common import muted


class Talker:
    def __init__(self):
        self.said = []

    def log(self, text):
        self.said.append(text)


@pytest.mark.parametrize("own", [False, True], ids=["of the class", "of the instance"])
def test_methods_are_muted_and_restored(own):
    talker = Talker()
    if own:
        talker.log = talker.said.append
    attributes = dict(vars(talker))
    with muted(talker, "log"):
        talker.log("meanwhile")
    assert vars(talker) == attributes
    talker.log("afterwards")
    assert talker.said == ["afterwards"]
