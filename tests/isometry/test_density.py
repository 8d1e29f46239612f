import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from contracts.defaults import other_defaults
from contracts.models import MODELS
from contracts.states import assert_same, state_of
from contracts.traces import differences, trace_of
from orthosparse.isometry import effective_density
from orthosparse.layers import find_layers
from orthosparse.masking import attach
from orthosparse.masks import draw


def random_masks(model, density, seed):
    g = torch.Generator().manual_seed(seed)
    return {
        name: draw(layer.shape, round(density * layer.numel), generator=g) for name, layer in find_layers(model).items()
    }


def live_by_derivative(model, x, masks, seed=0):
    """Oracle for models that are linear in x: d (v^T J u) / d w is not 0 for random weights, u and v, in float64."""
    g = torch.Generator().manual_seed(seed)
    layers = find_layers(model)
    names = {id(p): n for n, p in model.named_parameters()}
    state = {
        names[id(layer.parameter())]: (torch.randn(layer.shape, generator=g, dtype=torch.float64) * masks[name])
        for name, layer in layers.items()
    }
    for value in state.values():
        value.requires_grad_()
    x = torch.randn(x.shape, generator=g, dtype=torch.float64).requires_grad_()
    y = torch.func.functional_call(model.double(), state, (x,))
    v = torch.randn(y.shape, generator=g, dtype=torch.float64)
    (u,) = torch.autograd.grad((y * v).sum(), x, create_graph=True)
    derivatives = torch.autograd.grad(
        (u * torch.randn(u.shape, generator=g, dtype=torch.float64)).sum(), state.values()
    )
    return {name: (d != 0) & masks[name] for name, d in zip(layers, derivatives, strict=True)}


class Residual(nn.Module):
    """Branches, strides, concatenation, grouped and dilated convolutions; linear, so that the oracle holds."""

    def __init__(self, act=nn.Identity, norm=nn.Identity):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.first = nn.Conv2d(4, 4, 3, padding=2, dilation=2, bias=False)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
        self.down = nn.Conv2d(8, 6, 2, stride=2, bias=False)
        self.up = nn.ConvTranspose2d(6, 3, 2, stride=2, bias=False)
        self.head = nn.Linear(3 * 16, 3, bias=False)
        self.norm, self.act = norm(4) if norm is not nn.Identity else norm(), act()

    def forward(self, x):
        x = self.act(self.norm(self.stem(x)))
        y = x - self.second(self.act(self.first(x)))
        z = self.up(self.act(self.down(torch.cat([x, y], 1))))
        return self.head(z.flatten(1))


@given(density=st.floats(0.05, 0.6), seed=st.integers(0, 1000))
def test_mlp_paths_are_products_of_masks(density, seed):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 7), nn.Hardtanh(), nn.Linear(7, 4))
    masks = random_masks(model, density, seed)
    a, b, c = (mask.double() for mask in masks.values())
    reached, reaching = [torch.ones(6), a.sum(1), b @ a.sum(1)], [c.sum(0) @ b, c.sum(0), torch.ones(4)]
    found = effective_density(model, torch.zeros(2, 6), masks=masks)
    total = 0
    for (name, mask), before, after in zip(masks.items(), reached, reaching, strict=True):
        expected = mask & (before > 0) & (after > 0).unsqueeze(1)
        assert torch.equal(found.layers[name].live, expected)
        assert found.layers[name].dead_outputs == int((~expected.any(1)).sum())
        assert found.layers[name].dead_inputs == int((~expected.any(0)).sum())
        total += int(expected.sum())
    assert found.total == total / (48 + 56 + 28)


@pytest.mark.parametrize("density", [0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_residual_convolutions_agree_with_derivatives(density, seed):
    model = Residual()
    masks = random_masks(model, density, seed)
    expected = live_by_derivative(Residual(), torch.ones(1, 2, 4, 4), masks)
    found = effective_density(model, torch.ones(1, 2, 4, 4), masks=masks)
    assert all(torch.equal(found.layers[name].live, expected[name]) for name in masks)
    assert found.density == sum(int(m.sum()) for m in masks.values()) / sum(m.numel() for m in masks.values())


@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.GELU, nn.Hardtanh, nn.SELU, nn.Sigmoid, nn.Softplus, nn.Mish])
@pytest.mark.parametrize("norm", [nn.Identity, nn.BatchNorm2d, lambda c: nn.GroupNorm(2, c)])
def test_activations_and_normalizations_do_not_change_the_paths(act, norm):
    masks = random_masks(Residual(), 0.15, 0)
    expected = effective_density(Residual(), torch.ones(1, 2, 4, 4), masks=masks)
    found = effective_density(Residual(act, norm), torch.ones(1, 2, 4, 4), masks=masks)
    assert all(torch.equal(found.layers[name].live, expected.layers[name].live) for name in masks)


def test_a_thousand_layers_neither_overflow_nor_vanish():
    layers = [layer for _ in range(1000) for layer in (nn.Linear(16, 16), nn.Tanh())]
    model = nn.Sequential(*layers)
    masks = random_masks(model, 0.25, 0)
    found = effective_density(model, torch.ones(1, 16), masks=masks)
    reached = [torch.ones(16, dtype=torch.bool)]
    for mask in masks.values():
        reached.append((mask & reached[-1]).any(1))
    reaching = torch.ones(16, dtype=torch.bool)
    for (name, mask), before in zip(reversed(masks.items()), reversed(reached[:-1]), strict=True):
        assert torch.equal(found.layers[name].live, mask & before & reaching.unsqueeze(1))
        reaching = (mask & reaching.unsqueeze(1)).any(0)


@pytest.mark.parametrize("feeds", [False, True])
def test_a_thin_stream_beside_thick_ones_is_live(feeds):
    """One unit a layer that all 30 others feed and that feeds only the next one, or the other way round.

    Its share of all paths is 30^-300 at one end.
    """
    mask = torch.ones(31, 31, dtype=torch.bool)
    mask[:-1, -1] = feeds
    mask[-1, :-1] = not feeds
    model = nn.Sequential(*[nn.Linear(31, 31) for _ in range(300)])
    found = effective_density(model, torch.ones(1, 31), masks={str(i): mask for i in range(300)})
    assert found.total == found.density


class Gated(nn.Module):
    """Squeeze and excitation: the gate multiplies, and stays open when nothing reaches it."""

    def __init__(self):
        super().__init__()
        self.body, self.squeeze, self.excite = nn.Conv2d(3, 4, 1), nn.Linear(4, 2), nn.Linear(2, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = functional.relu(self.body(x), inplace=True)
        gate = torch.sigmoid(self.excite(functional.silu(self.squeeze(x.mean((2, 3))))))
        x = x * gate[:, :, None, None]
        return self.head(functional.adaptive_max_pool2d(functional.max_pool2d(x, 2, 2), 1).flatten(1))


def test_an_empty_gate_leaves_the_body_alive():
    model, x = Gated(), torch.ones(1, 3, 4, 4)
    masks = random_masks(model, 1.0, 0) | {"excite": torch.zeros(4, 2, dtype=torch.bool)}
    found = effective_density(model, x, masks=masks).layers
    assert found["body"].effective == found["head"].effective == 1
    assert found["squeeze"].effective == found["excite"].effective == 0


def test_a_gate_of_dead_units_is_dead():
    model, x = Gated(), torch.ones(1, 3, 4, 4)
    head = torch.ones(2, 4, dtype=torch.bool)
    head[:, 1] = False  # channel 1 reaches the output only through the gates of the others
    found = effective_density(model, x, masks=random_masks(model, 1.0, 0) | {"head": head}).layers
    assert found["excite"].live[:, 0].tolist() == [True, False, True, True]
    assert found["body"].live.all()


def test_a_constant_unit_carries_no_path():
    """sigmoid(0) is not 0, but it is the same for every input."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 1))
    masks = {"0": torch.tensor([[True, True], [False, False]]), "2": torch.ones(1, 2, dtype=torch.bool)}
    assert effective_density(model, torch.ones(1, 2), masks=masks).layers["2"].live.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("norm", "open_"), [(nn.LayerNorm(2), True), (nn.RMSNorm(2), False), (nn.BatchNorm1d(2), True)]
)
def test_a_normalization_with_a_shift_keeps_an_empty_gate_open(norm, open_):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.gate, self.norm = nn.Linear(2, 2), nn.Linear(2, 2, bias=False), norm

        def forward(self, x):
            return self.body(x) * self.norm(self.gate(x))

    masks = {"gate": torch.zeros(2, 2, dtype=torch.bool)}
    assert effective_density(Model(), torch.ones(1, 2), masks=masks).layers["body"].effective == open_


def test_a_factor_that_never_changes_is_no_path():
    """A weight between a constant unit and a gate scales a path, but none leads through it."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.gate = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)

        def forward(self, x):
            return x * self.gate(torch.sigmoid(self.hidden(x)))

    masks = {"hidden": torch.tensor([[True, True], [False, False]]), "gate": torch.ones(2, 2, dtype=torch.bool)}
    found = effective_density(Model(), torch.ones(1, 2), masks=masks).layers["gate"].live
    assert found.tolist() == [[True, False], [True, False]]


@pytest.mark.parametrize(
    ("in_place", "outside"),
    [
        (lambda a, b: a.mul_(b), torch.mul),
        (lambda a, b: a.div_(b), torch.div),
        (lambda a, b: a.sigmoid_().mul_(b), lambda a, b: a.sigmoid() * b),
        (lambda a, b: functional.hardtanh(a, inplace=True).sub_(b), lambda a, b: functional.hardtanh(a) - b),
        (lambda a, b: a.mul_(a).add_(b), lambda a, b: a * a + b),
        (lambda a, b: a.square().mul_(a) + b, lambda a, b: a.square() * a + b),
        (lambda a, b: a.relu().mul_(0 * b) + a, lambda a, b: a.relu() * (0 * b) + a),
    ],
)
def test_what_changes_a_tensor_in_place_has_the_paths_of_what_returns_a_new_one(in_place, outside):
    class Model(nn.Module):
        def __init__(self, combine):
            super().__init__()
            self.body, self.gate, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.combine = combine

        def forward(self, x):
            return self.head(self.combine(self.body(x), self.gate(x)))

    masks = random_masks(Model(outside), 0.3, 0)
    found, expected = (effective_density(Model(each), torch.ones(1, 4), masks=masks) for each in (in_place, outside))
    assert 0 < found.total == expected.total
    assert all(torch.equal(found.layers[name].live, expected.layers[name].live) for name in masks)


@pytest.mark.parametrize(
    ("joined", "apart"),
    [
        (lambda a, b: torch.addcmul(a, b, b, value=-2), lambda a, b: a - 2 * b * b),
        (lambda a, b: torch.addcdiv(a, b, a, value=-1), lambda a, b: a - b / a),
        (lambda a, b: torch.addmm(a, b, torch.eye(4), alpha=-1), lambda a, b: a - b),
        (lambda a, b: b + torch.tensordot(a, -torch.eye(4), 1), lambda a, b: b - a),
        (lambda a, b: b + torch.inner(a, -torch.eye(4)), lambda a, b: b - a),
    ],
    ids=["addcmul", "addcdiv", "addmm", "tensordot", "inner"],
)
def test_negative_factors_of_joined_operations_close_no_path(joined, apart):
    class Model(nn.Module):
        def __init__(self, combine):
            super().__init__()
            self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.combine = combine

        def forward(self, x):
            return self.head(self.combine(self.first(x), self.second(x)))

    masks = random_masks(Model(apart), 0.4, 0)
    found, expected = (effective_density(Model(each), torch.ones(1, 4), masks=masks) for each in (joined, apart))
    assert 0 < found.total == expected.total
    assert all(torch.equal(found.layers[name].live, expected.layers[name].live) for name in masks)


def zeros_in(masks, name, rows):
    mask = masks[name].clone()
    mask[rows] = False
    return masks | {name: mask}


@pytest.mark.parametrize("layer", [nn.MultiheadAttention, nn.TransformerEncoderLayer])
def test_attention_without_keys_still_mixes_values(layer):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer(8, 2, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x)[0] if layer is nn.MultiheadAttention else self.inner(x)

    model, x = Model(), torch.ones(1, 3, 8)
    name = next(n for n in find_layers(model) if n.endswith("in_proj_weight"))
    full = random_masks(model, 1.0, 0)
    assert effective_density(model, x, masks=full).total == 1
    without_keys = effective_density(model, x, masks=zeros_in(full, name, slice(8, 16))).layers[name].live
    assert without_keys[:8].all()  # the keys' biases are trained: queries still decide
    assert not without_keys[8:16].any()
    assert without_keys[16:].all()
    without_values = effective_density(model, x, masks=zeros_in(full, name, slice(16, 24))).layers[name].live
    assert not without_values[16:].any()
    assert without_values[:16].all()  # what they weigh, the values' biases, is trained


def test_causal_attention_closes_the_future():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.early, self.late = nn.Linear(4, 12), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = torch.stack([self.early(x[:, 0]), self.late(x[:, 1])], 1)
            q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0, 0]

    found = effective_density(Model(), torch.ones(1, 2, 4)).layers
    assert found["early"].effective == 1
    assert found["late"].effective == 0


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers(kind, bidirectional):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = kind(3, 4, num_layers=2, batch_first=True, bidirectional=bidirectional)
            self.head = nn.Linear(8 if bidirectional else 4, 2)

        def forward(self, x):
            return self.head(self.inner(x)[0])

    model = Model()
    full = random_masks(model, 1.0, 0)
    assert effective_density(model, torch.ones(1, 3, 3), masks=full).total == 1
    # One step: nothing comes from the state before it.
    one = effective_density(model, torch.ones(1, 1, 3), masks=full).layers
    first = 0.75 if kind is nn.LSTM else 1  # the forget gate multiplies a state of zero
    expected = {name: 0 if "_hh_" in name else first if "_ih_" in name else 1 for name in one}
    assert {name: part.effective for name, part in one.items()} == expected
    empty = torch.zeros_like(full["inner.weight_ih_l0"])
    dead = effective_density(model, torch.ones(1, 3, 3), masks=full | {"inner.weight_ih_l0": empty})
    assert (dead.total == 0) is not bidirectional


def test_tokens_enter_through_their_embedding():
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    masks = {"1": torch.ones(4, 6, dtype=torch.bool), "3": torch.tensor([[True, False] * 2] * 2)}
    found = effective_density(model, torch.tensor([[1, 2]]), masks=masks)
    assert found.layers["1"].live.all(1).tolist() == [True, False, True, False]


def test_attached_masks_count_even_where_the_weight_is_zero():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    nn.init.zeros_(model[0].weight)
    masks = {"0": torch.eye(3, dtype=torch.bool), "2": torch.eye(3, dtype=torch.bool)}
    attach(model, masks)
    found = effective_density(model, torch.ones(1, 3))
    assert found.total == found.density == 1 / 3
    assert float(found) == found.total
    assert torch.equal(found.layers["0"].live, masks["0"])


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 2))
    model[1].eval()
    before = state_of(model)
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    effective_density(model, torch.ones(2, 2, 4, 4))
    assert_same(before, model.state_dict())
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", MODELS)
def test_a_default_device_and_dtype_do_not_matter(name):
    model, (x, _) = MODELS[name].make(), MODELS[name].batch()
    masks = dict(list(random_masks(model, 0.3, 0).items())[1:])  # the first layer has none
    expected = effective_density(model, x, masks=masks)
    with other_defaults():
        found = effective_density(model, x, masks=masks)
    assert all(torch.equal(part.live, expected.layers[key].live) for key, part in found.layers.items())


def test_layers_that_are_computed_again_in_the_backward_pass_are_refused():
    class Recomputed(nn.Sequential):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    model = Recomputed(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))
    before = trace_of(model)
    with pytest.raises(ValueError, match=r"activation checkpointing.*switch that off"):
        effective_density(model, torch.ones(2, 3))
    assert differences(before, trace_of(model)) == []


def test_bad_input_is_named():
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="x: expected a batch"):
        effective_density(model, torch.ones(0, 3))
    with pytest.raises(ValueError, match="masks: expected names of layers"):
        effective_density(model, torch.ones(1, 3), masks={"1": torch.ones(3, 3).bool()})
    with pytest.raises(ValueError, match="masks: expected shape"):
        effective_density(model, torch.ones(1, 3), masks={"0": torch.ones(3, 2).bool()})
    with pytest.raises(TypeError, match="masks: expected a mapping from layer names to Tensor; got int"):
        effective_density(model, torch.ones(1, 3), masks=3)
    with pytest.raises(TypeError, match=r"masks: expected a mapping .*; got int for '0'"):
        effective_density(model, torch.ones(1, 3), masks={"0": 3})
    with pytest.raises(TypeError, match="x: expected a tensor"):
        effective_density(model, [1.0])
    with pytest.raises(ValueError, match="does not depend on its input"):
        effective_density(nn.Sequential(nn.Linear(3, 3)), torch.ones(1, 3), output=lambda out: torch.ones(1))


def test_blocks_of_a_convolution_share_its_inputs():
    model = nn.Sequential(nn.Conv1d(3, 4, 1, bias=False), nn.Flatten())
    mask = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]], dtype=torch.bool).unsqueeze(2)
    layers = find_layers(model, split={"0": 2})
    found = effective_density(model, torch.zeros(1, 3, 5), masks={"0": mask}, layers=layers)
    assert found.layers["0"].dead_inputs == 1  # the last one; the others are read by one block or the other
    assert found.layers["0"].dead_outputs == 0
