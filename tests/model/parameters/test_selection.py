"""Which parameters' gradients are computed."""

from torch import nn

from neuroinit.model.parameters.selection import Selection


def model():
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))


def test_gradients_of_selects_parameters_by_their_module():
    selection = Selection(gradients_of=lambda module, key, tensor: isinstance(module, nn.LayerNorm))
    assert selection.differentiated(model()) == ["1.weight", "1.bias"]


def test_without_a_match_all_trainable_parameters_count():
    frozen = model()
    frozen[0].requires_grad_(False)
    everything = ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert Selection().differentiated(frozen) == everything
    nothing = Selection(gradients_of=lambda module, key, tensor: False)
    assert nothing.differentiated(frozen) == everything
