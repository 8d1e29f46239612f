import pytest
import torch
from torch import nn

from contracts.models import MODELS
from contracts.shared import SHARED
from contracts.traces import differences, prepared, trace_of
from orthosparse.substitution import preserve, seed_generators, substituted, with_tensors


def doubled(model):
    return {name: 2 * tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("name", SHARED)
def test_every_place_holds_its_own_object_again_however_the_block_ends(name, fails):
    model = prepared(SHARED[name].make())
    before = trace_of(model)
    try:
        with substituted(model, doubled(model)):
            assert not any(isinstance(tensor, nn.Parameter) for tensor in model.parameters())
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert fails
    assert differences(before, trace_of(model)) == []


@pytest.mark.parametrize("given", ["0.weight", "1.weight"])
@pytest.mark.parametrize("tie", ["module", "tensor"])
def test_a_tensor_of_several_names_is_lent_to_all_its_places_under_any_of_them(tie, given):
    layer = nn.Linear(3, 3, bias=False)
    model = nn.Sequential(layer, layer if tie == "module" else nn.Linear(3, 3, bias=False))
    model[1].weight = layer.weight
    x = torch.eye(3)
    with substituted(model, {given: 2 * x}):
        assert torch.equal(model(x), 4 * x)


def test_what_is_not_named_stays():
    model = nn.Linear(2, 2)
    own = model.bias
    with substituted(model, {"weight": torch.eye(2)}):
        assert model.bias is own


def test_equal_tensors_that_are_not_the_same_are_not_taken_for_each_other():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    own = model[1].weight
    with torch.no_grad():
        own.copy_(model[0].weight)
    with substituted(model, {"0.weight": torch.eye(2)}):
        assert model[1].weight is own


def test_a_buffer_that_a_forward_pass_exchanges_or_makes_leaves_no_trace():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen = self.seen + 1
            self.register_buffer("last", x)
            return x * self.seen

    model = Counting()
    own = model.seen
    with substituted(model, {"seen": torch.ones(())}):
        assert model(torch.ones(())) == 2
    assert dict(model.named_buffers()) == {"seen": own}


def test_loans_nest():
    model = nn.Linear(1, 1, bias=False)
    own, x = model.weight, torch.ones(1, 1)
    with substituted(model, {"weight": 2 * x}):
        with substituted(model, {"weight": 3 * x}):
            assert model(x) == 3
        assert model(x) == 2
        assert torch.func.functional_call(model, {"weight": 5 * x}, (x,)) == 5
        assert model(x) == 2
    assert model.weight is own


def test_a_user_who_breaks_a_substitution_inside_does_not_break_the_model():
    """`functional_call` on a shared module leaves what it substituted; the outer substitution ends all the same."""
    model = SHARED["module"].make()
    before = trace_of(model)
    with substituted(model, doubled(model)):
        torch.func.functional_call(model, doubled(model), (SHARED["module"].batch()[0],))
    assert differences(before, trace_of(model)) == []


def test_gradients_of_all_places_meet_in_the_lent_tensor():
    layer = nn.Linear(1, 1, bias=False)
    leaf = torch.full((1, 1), 3.0, requires_grad=True)
    model = nn.Sequential(layer, layer)
    with substituted(model, {"0.weight": leaf}):
        model(torch.ones(1, 1)).backward()  # w^2
    assert leaf.grad == 6
    assert layer.weight.grad is None


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_part_takes_a_loan_and_has_its_own_values_back():
    part = torch.jit.script(nn.Linear(1, 1, bias=False))
    model, x = nn.Sequential(part), torch.ones(1, 1)
    value = part.weight.item()
    with substituted(model, {"0.weight": 3 * x}):
        assert model(x) == 3
    assert isinstance(part.weight, nn.Parameter)
    assert part.weight.item() == value


def test_an_unknown_name_is_an_error_and_lends_nothing():
    model = nn.Linear(2, 2)
    before = trace_of(model)
    with pytest.raises(KeyError, match="wieght"), substituted(model, {"weight": torch.eye(2), "wieght": torch.eye(2)}):
        pytest.fail("entered")
    assert differences(before, trace_of(model)) == []


class Messy(nn.Module):
    """Changes all that a forward pass can change on its module."""

    def __init__(self):
        super().__init__()
        self.linear, self.lstm = nn.Linear(3, 3), nn.LSTM(3, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        self.last = x
        self.register_buffer("cache", x.detach())
        self.train(not self.training)
        return self.lstm(self.linear(x))[0] + torch.rand(())


@pytest.mark.parametrize("fails", [False, True])
def test_all_that_a_forward_pass_changes_is_put_back(fails):
    model = prepared(Messy())
    before = trace_of(model)

    def run(model):
        model.eval()
        model(torch.ones(2, 3)).sum()
        if fails:
            raise KeyboardInterrupt

    try:
        with preserve(model):
            seed_generators(model, 7)
            own = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
            own |= {name: tensor.clone() for name, tensor in model.named_buffers()}
            with with_tensors(model, own):
                run(model)
    except KeyboardInterrupt:
        assert fails
    assert differences(before, trace_of(model)) == []


def test_the_trace_sees_what_is_not_put_back():
    """The same without `preserve`: a law that could not fail would prove nothing."""
    model = prepared(Messy())
    before = trace_of(model)
    with torch.random.fork_rng(devices=[]):
        model(torch.ones(2, 3))
        changed = differences(before, trace_of(model))
    expected = {"seen: value", "cache: value", ": attributes", ": mode", "torch"}
    assert expected <= set(changed)


def test_compiled_calls_are_stepped_over_and_put_back():
    model = MODELS["mlp"].make()
    model._compiled_call_impl = compiled = lambda *_: pytest.fail("called")
    with preserve(model):
        assert model(MODELS["mlp"].batch()[0]).shape == (8, 5)
    assert model._compiled_call_impl is compiled


def test_dropout_draws_what_the_seed_says():
    drop = nn.Dropout(0.5)
    draws = []
    for seed in (1, 1, 2):
        with preserve(drop):
            seed_generators(drop, seed)
            draws.append(drop(torch.ones(50)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_tied_tensor_is_substituted_in_every_module():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    x = torch.eye(3)
    with with_tensors(model, {"0.weight": 2 * x}):
        assert torch.equal(model(x), 4 * x)


@pytest.mark.parametrize("enabled", [True, False])
def test_cudnn_is_off_for_recurrent_models_alone_and_is_as_before_afterwards(enabled):
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = enabled
    try:
        for model, expected in ((nn.GRU(2, 2), False), (nn.Linear(2, 2), enabled)):
            with with_tensors(model, {}):
                assert torch.backends.cudnn.enabled == expected
        with pytest.raises(ZeroDivisionError), with_tensors(nn.GRU(2, 2), {}):
            raise ZeroDivisionError
        assert torch.backends.cudnn.enabled == enabled
    finally:
        torch.backends.cudnn.enabled = before
