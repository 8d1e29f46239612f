import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from orthosparse.layers import find_layers, unwrapped
from orthosparse.layers.find import left_dense
from orthosparse.masking.formats import import_prune_masks


def only(model, **kwargs):
    (layer,) = find_layers(model, **kwargs).values()
    return layer


def test_weights_are_found_and_embeddings_norms_and_biases_are_not():
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(5, 4),
            "norm": nn.LayerNorm(4),
            "bn": nn.BatchNorm1d(4),
            "fc": nn.Linear(4, 4),
            "conv": nn.Conv2d(3, 8, 3),
        }
    )
    assert [*find_layers(model)] == ["fc", "conv"]
    assert only(nn.Linear(4, 4)).name == "weight"


@pytest.mark.parametrize(
    ("module", "floor", "stacks"),
    [
        (nn.Linear(5, 7), 5, [(1, 7, 5, 1)]),
        (nn.Conv1d(4, 6, 3), 4, [(1, 6, 4, 3)]),
        (nn.Conv2d(4, 6, (1, 3)), 4, [(1, 6, 4, 3)]),
        (nn.Conv3d(4, 6, 2, groups=2), 4, [(2, 3, 2, 8)]),
        (nn.Conv2d(6, 6, 3, groups=6), 6, [(6, 1, 1, 9)]),
        (nn.Conv2d(6, 12, 3, groups=6), 6, [(6, 2, 1, 9)]),
        (nn.ConvTranspose2d(4, 6, 3), 4, [(1, 6, 4, 9)]),
        (nn.ConvTranspose1d(8, 4, 3, groups=2), 4, [(2, 2, 4, 3)]),
    ],
)
def test_a_layer_knows_its_matrices_and_its_floor(module, floor, stacks):
    layer = only(module)
    assert layer.floor == floor
    assert [tuple(stack.shape) for stack in layer.matrices(layer.parameter().detach())] == stacks
    assert layer.numel == module.weight.numel()


def test_writing_to_the_matrices_writes_to_the_tensor():
    for module in (nn.Linear(3, 4), nn.Conv2d(4, 4, 3, groups=2), nn.ConvTranspose2d(4, 6, 3, groups=2)):
        layer, tensor = only(module), torch.zeros_like(module.weight)
        for stack in layer.matrices(tensor):
            stack.fill_(1.0)
        assert bool((tensor == 1).all())


def test_matrices_are_the_maps_that_the_module_applies():
    """A 1x1 (transposed, grouped) convolution of a single pixel is the block-diagonal matrix of its stack."""
    for module in (nn.Conv2d(4, 6, 1, groups=2, bias=False), nn.ConvTranspose2d(4, 6, 1, groups=2, bias=False)):
        layer = only(module)
        (stack,) = layer.matrices(module.weight.detach())
        matrix = torch.block_diag(*stack.squeeze(-1))
        x = torch.randn(1, 4, 1, 1, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(module(x).flatten(), matrix @ x.flatten())


@pytest.mark.parametrize(
    ("module", "split", "floor", "stacks"),
    [
        (nn.Conv1d(4, 12, 1), 3, 12, [(3, 4, 4, 1)]),
        (nn.Conv2d(4, 12, (1, 3)), (8, 2, 2), 8, [(1, 8, 4, 3), (1, 2, 4, 3), (1, 2, 4, 3)]),
        (nn.ConvTranspose2d(4, 12, 2), 3, 12, [(3, 4, 4, 4)]),
        (nn.Conv1d(4, 12, 1, groups=2), 3, 8, [(1, 4, 2, 1), (1, 2, 2, 1), (1, 2, 2, 1), (1, 4, 2, 1)]),
        (nn.ConvTranspose1d(4, 8, 3, groups=2), 4, 8, [(1, 2, 2, 3)] * 4),
        (nn.Conv2d(6, 6, 3, groups=6), 3, 6, [(6, 1, 1, 9)]),  # whole groups: there is nothing to cut
    ],
)
def test_a_split_convolution_holds_a_matrix_for_each_block_in_each_group(module, split, floor, stacks):
    layer = only(nn.Sequential(module), split={"0": split})
    assert layer.floor == floor
    assert [tuple(stack.shape) for stack in layer.matrices(module.weight.detach())] == stacks
    assert layer.shapes == [shape for many, *shape_, _ in stacks for shape in [tuple(shape_)] * many]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
@pytest.mark.parametrize("split", [3, (2, 7, 3)])
def test_the_matrices_of_a_split_convolution_are_its_outputs_in_order(kind, groups, split):
    """Of a single pixel: block-diagonal over groups, the rows of each group one block after the other."""
    module = kind(4, 12, 1, groups=groups, bias=False)
    layer = only(nn.Sequential(module), split={"0": split})
    parts = [matrix[..., 0] for stack in layer.matrices(module.weight.detach()) for matrix in stack]
    x = torch.randn(1, 4, 1, generator=torch.Generator().manual_seed(0))
    after, values = 0, []
    for part in parts:
        inputs = x.flatten()[4 // groups * (after // (12 // groups)) :][: 4 // groups]
        values.append(part @ inputs)
        after += len(part)
    torch.testing.assert_close(torch.cat(values), module(x).flatten())
    tensor = torch.zeros_like(module.weight)
    for stack in layer.matrices(tensor):
        stack += 1
    assert bool((tensor == 1).all())


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (3, "split: expected a mapping from names to numbers or sizes of parts; got 3"),
        ({0: 3}, "split: expected a mapping from names"),
        ({"0": [4.0, 4.0]}, r"split: expected an integer or a sequence of integers for '0'; got \[4.0, 4.0\]"),
        ({"0": "ab"}, "for '0'; got 'ab'"),
        ({"0": True}, "for '0'; got True"),
        ({"0": None}, "for '0'; got None"),
    ],
    ids=str,
)
def test_what_is_no_split_is_refused_by_name(split, message):
    with pytest.raises(TypeError, match=message):
        find_layers(nn.Sequential(nn.Linear(4, 8)), split=split)


def test_attention_holds_three_blocks_or_three_tensors():
    layers = find_layers(nn.ModuleDict({"attn": nn.MultiheadAttention(8, 2)}))
    assert [*layers] == ["attn.in_proj_weight", "attn.out_proj"]
    assert layers["attn.in_proj_weight"].parts == (8, 8, 8)
    assert layers["attn.in_proj_weight"].floor == 24
    apart = find_layers(nn.ModuleDict({"attn": nn.MultiheadAttention(8, 2, kdim=4, vdim=6)}))
    assert [*apart] == ["attn.q_proj_weight", "attn.k_proj_weight", "attn.v_proj_weight", "attn.out_proj"]


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_every_gate_is_a_block(kind, gates):
    layers = find_layers(nn.ModuleDict({"rnn": kind(5, 7, num_layers=2, bidirectional=True)}))
    assert len(layers) == 8
    assert all(layer.parts == (7,) * gates for layer in layers.values())
    assert layers["rnn.weight_hh_l0"].floor == 7 * gates
    assert layers["rnn.weight_ih_l0"].floor == 5 * gates
    assert layers["rnn.weight_ih_l0"].biases == ("bias_ih_l0",)


def test_recurrent_tensors_come_in_the_order_of_the_parameters():
    model = nn.LSTM(5, 7, num_layers=2, bidirectional=True, proj_size=3)
    assert [*find_layers(model)] == [name for name, _ in model.named_parameters() if name.startswith("weight")]


def test_a_projected_lstm_has_its_projection_as_one_matrix():
    layers = find_layers(nn.ModuleDict({"rnn": nn.LSTM(5, 8, proj_size=3)}))
    assert layers["rnn.weight_hr_l0"].parts == (3,)
    assert layers["rnn.weight_hh_l0"].parts == (8, 8, 8, 8)


def test_fused_projections_are_known_by_name_and_by_split():
    block = nn.ModuleDict({"attn": nn.ModuleDict({"qkv": nn.Linear(4, 12), "proj": nn.Linear(4, 12)})})
    layers = find_layers(block)
    assert layers["attn.qkv"].parts == (4, 4, 4)
    assert layers["attn.proj"].parts == (12,)
    assert find_layers(block, split={"*.proj": 2})["attn.proj"].parts == (6, 6)
    assert find_layers(block, split={"attn.qkv": (8, 2, 2)})["attn.qkv"].floor == 4 + 2 + 2
    with pytest.raises(ValueError, match="split: expected a divisor or a partition of 12"):
        find_layers(block, split={"*.proj": 5})
    with pytest.raises(ValueError, match="split: expected names of modules; 'q' matches none"):
        find_layers(block, split={"q": 3})


def test_hugging_face_conv1d_is_a_transposed_linear():
    from transformers.pytorch_utils import Conv1D

    model = nn.ModuleDict({"c_attn": Conv1D(12, 4), "c_proj": Conv1D(6, 4)})
    layers = find_layers(model)
    assert layers["c_attn"].parts == (4, 4, 4)
    assert layers["c_proj"].transposed
    assert layers["c_proj"].biases == ("bias",)
    (stack,) = layers["c_proj"].matrices(model["c_proj"].weight.detach())
    x = torch.randn(4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model["c_proj"](x[None])[0], stack[0, :, :, 0] @ x + model["c_proj"].bias)


def test_tied_weights_appear_once_and_those_of_embeddings_not_at_all():
    a, b, c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 9, bias=False)
    b.weight = a.weight
    embedding = nn.Embedding(9, 4)
    c.weight = embedding.weight
    model = nn.ModuleDict({"embedding": embedding, "a": a, "b": b, "c": c})
    layers = find_layers(model)
    assert [*layers] == ["a"]
    assert layers["a"].tied == ((b, "weight"),)
    assert [*find_layers(model, include=["c"])] == ["c"]


def test_frozen_tensors_are_left_alone_unless_named():
    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4))
    assert [*find_layers(model)] == ["1"]
    assert [*find_layers(model, include=["0", "1"])] == ["0", "1"]


def test_a_module_of_ones_own_is_taken_when_its_tensors_are_named():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight_a = nn.Parameter(torch.zeros(3, 4))
            self.weight_b = nn.Parameter(torch.zeros(4, 3))
            self.scale = nn.Parameter(torch.zeros(3))

    model = nn.ModuleDict({"mixer": Mixer(), "fc": nn.Linear(2, 2)})
    assert [*find_layers(model)] == ["fc"]
    assert [*find_layers(model, include=[Mixer])] == ["mixer.weight_a", "mixer.weight_b"]
    assert [*find_layers(model, include=["mixer.weight_b", "fc"])] == ["mixer.weight_b", "fc"]


class Gated(nn.Module):
    """Two matrices as some people store them, one of them two fused ones, and a kernel."""

    __orthosparse__ = {"w_in": "in out", "w_out": "out in", "kernel": "in out tap"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.w_in, self.w_out = nn.Parameter(torch.zeros(4, 10)), nn.Parameter(torch.zeros(4, 5))
        self.kernel, self.scale = nn.Parameter(torch.zeros(4, 6, 3)), nn.Parameter(torch.zeros(3, 3))


def test_declared_tensors_are_found_beside_the_others_in_their_orientation():
    layers = find_layers(nn.ModuleDict({"gated": Gated(), "fc": nn.Linear(2, 2)}))
    assert [*layers] == ["gated.w_in", "gated.w_out", "gated.kernel", "fc"]
    assert [(layer.transposed, layer.parts, layer.floor) for layer in layers.values()] == [
        (True, (10,), 4),
        (False, (4,), 4),
        (True, (6,), 4),
        (False, (2,), 2),
    ]
    shapes = [tuple(layer.matrices(layer.weight())[0].shape) for layer in layers.values()]
    assert shapes == [(1, 10, 4, 1), (1, 4, 5, 1), (1, 6, 4, 3), (1, 2, 2, 1)]


def test_a_split_may_name_one_tensor_of_a_module():
    layers = find_layers(nn.ModuleDict({"gated": Gated()}), split={"*.w_in": 2})
    assert layers["gated.w_in"].parts == (5, 5)
    assert layers["gated.w_in"].floor == 8
    assert layers["gated.w_out"].parts == (4,)


def test_a_declaration_is_the_whole_truth_about_its_module():
    model = nn.ModuleDict({"fc": nn.Linear(2, 2), "odd": nn.Linear(2, 2)})
    model["odd"].__orthosparse__ = {}
    assert [*find_layers(model)] == ["fc"]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"w_inn": "in out"}, r"Gated.__orthosparse__: 'g.w_inn': expected a parameter of the module \(w_in, w_out"),
        ({"w_in": "io"}, r"'g.w_in': expected one word per dimension of \(4, 10\): 'out in' or 'in out'.*got 'io'"),
        ({"w_in": "out in tap"}, "expected one word per dimension"),
        ({"kernel": "out in"}, "expected one word per dimension"),
        ({"kernel": "tap out in"}, "expected one word per dimension"),
        ({"kernel": "out in in"}, "expected one word per dimension"),
    ],
    ids=str,
)
def test_a_wrong_declaration_is_refused(declared, message):
    model = nn.ModuleDict({"g": Gated()})
    model["g"].__orthosparse__ = declared
    with pytest.raises(ValueError, match=message):
        find_layers(model)


def test_a_declared_tensor_that_this_module_was_built_without_is_passed_over():
    model = nn.ModuleDict({"g": Gated()})
    model["g"].register_parameter("w_out", None)
    assert [*find_layers(model)] == ["g.w_in", "g.kernel"]


def test_types_globs_and_callables_pass_over_frozen_tensors_and_tied_embeddings():
    model = nn.ModuleDict({"words": nn.Embedding(9, 4), "head": nn.Linear(4, 9, bias=False), "fc": nn.Linear(4, 4)})
    model["head"].weight = model["words"].weight
    model["old"] = nn.Sequential(nn.Linear(4, 4)).requires_grad_(False)
    for everything in (nn.Linear, "*", lambda name, module: isinstance(module, nn.Linear)):
        found = find_layers(model, include=everything, exclude="words")
        assert [*found] == ["fc"]
    assert [*find_layers(model, include=["old", "head"])] == ["head", "old.0"]
    assert [*find_layers(model, include=[nn.Embedding, "old.0.weight"])] == ["words", "old.0"]


def test_what_is_left_dense_is_told_with_the_reason():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.scale = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))

    model = nn.ModuleDict(
        {"words": nn.Embedding(9, 4), "fc": nn.Linear(4, 4), "mixer": Mixer(), "out": nn.Linear(4, 4)}
    )
    model["out"].requires_grad_(False)
    model["lazy"] = nn.LazyLinear(3)
    left = left_dense(model, find_layers(model, exclude=["lazy", "fc"]))
    assert left == {
        "words": "embedding",
        "fc": "not selected",
        "mixer.table": "in a Mixer, which declares no matrices",
        "out": "frozen",
    }


def test_a_tensor_that_cannot_be_masked_may_be_excluded():
    model = nn.ModuleDict({"fc": parametrizations.weight_norm(nn.Linear(4, 4)), "out": nn.Linear(4, 4)})
    assert [*find_layers(model, exclude=["fc"])] == ["out"]


def test_weight_norm_is_refused_by_name():
    model = nn.ModuleDict({"fc": parametrizations.weight_norm(nn.Linear(4, 4))})
    with pytest.raises(ValueError, match="'fc' is computed from several tensors"):
        find_layers(model)


def pruned(module, tensor):
    return prune.l1_unstructured(module, tensor, amount=3)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: weight_norm(nn.Linear(4, 4)),
        lambda: spectral_norm(nn.Linear(4, 4)),
        lambda: weight_norm(nn.ConvTranspose1d(4, 4, 1)),
        lambda: weight_norm(nn.LSTM(4, 4), "weight_hh_l0"),
        lambda: parametrizations.weight_norm(nn.LSTM(4, 4), "weight_hh_l0"),
        lambda: parametrizations.weight_norm(nn.GRUCell(4, 4), "weight_hh"),
        lambda: parametrizations.weight_norm(Gated(), "w_in"),
    ],
)
def test_a_tensor_that_others_compute_is_refused_by_name_in_any_module_and_may_be_excluded(make):
    model = nn.ModuleDict({"odd": make(), "out": nn.Linear(4, 4)})
    with pytest.raises(ValueError, match=r"'odd[.\w]*' is computed from several tensors .*exclude it"):
        find_layers(model)
    layers = find_layers(model, exclude=["odd"])
    assert [*layers] == ["out"]
    left = left_dense(model, layers)
    assert not any("declares no matrices" in why for name, why in left.items() if "weight" in name)


@pytest.mark.parametrize(
    ("module", "tensor"), [(nn.Linear(4, 4), "weight"), (nn.MultiheadAttention(4, 2), "in_proj_weight")], ids=str
)
def test_masks_of_torchs_own_pruning_are_refused_with_the_way_to_take_them_over(module, tensor):
    model = nn.ModuleDict({"odd": pruned(module, tensor), "out": nn.Linear(4, 4)})
    with pytest.raises(ValueError, match=r"'odd[.\w]*' has a mask of torch.nn.utils.prune; import_prune_masks"):
        find_layers(model)
    assert "odd" not in find_layers(model, exclude=["odd"])
    import_prune_masks(model)
    assert "out" in find_layers(model)


def test_a_weight_that_is_a_buffer_does_not_train_and_is_left_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    weight = model[0].weight.detach()
    del model[0].weight
    model[0].register_buffer("weight", weight)
    assert [*find_layers(model)] == ["1"]
    assert left_dense(model, find_layers(model)) == {"0": "buffer"}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
def test_tensors_without_entries_are_left_alone_and_told():
    model = nn.ModuleDict({"none": nn.Linear(0, 5), "empty": nn.Conv1d(3, 0, 1), "fc": nn.Linear(5, 5)})
    for include in (None, ["none", "empty", "fc"]):
        layers = find_layers(model, include=include)
        assert [*layers] == ["fc"]
        assert left_dense(model, layers) == {"none": "without entries", "empty": "without entries"}


def test_a_lazy_module_is_refused_by_name():
    model = nn.ModuleDict({"fc": nn.LazyLinear(4)})
    with pytest.raises(ValueError, match="'fc' has no shape yet"):
        find_layers(model)


def test_wrappers_are_looked_through():
    model = nn.Linear(2, 2)
    assert unwrapped(torch.compile(nn.DataParallel(model))) is model
    assert [*find_layers(nn.DataParallel(nn.Sequential(model)))] == ["0"]


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, weight_norm])
def test_weight_normed_layers_are_listed_as_left_dense(norm):
    model = nn.ModuleDict(
        {"normed": norm(nn.Linear(4, 4)), "rnn": norm(nn.GRU(3, 3), "weight_hh_l0"), "fc": nn.Linear(4, 4)}
    )
    left = left_dense(model, find_layers(model, exclude=["normed", "rnn"]))
    assert left == {
        "normed": "computed from several tensors",
        "rnn.weight_hh_l0": "computed from several tensors",
        "rnn.weight_ih_l0": "not selected",
    }


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*quantize:FutureWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor.*:UserWarning")
def test_quantized_layers_are_listed_as_left_dense():
    packed = torch.ao.nn.quantized.dynamic.Linear(4, 4)
    integers = nn.Linear(4, 4, bias=False)
    integers.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
    model = nn.ModuleDict({"packed": packed, "integers": integers, "fc": nn.Linear(4, 4)})
    assert left_dense(model, find_layers(model)) == {"packed": "quantized", "integers": "quantized"}


@pytest.fixture
def model():
    return nn.ModuleDict({"body": nn.Sequential(nn.Linear(2, 2), nn.Conv1d(1, 1, 1)), "head": nn.Linear(2, 2)})


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ("head", {"head"}),
        ("body", {"body.0", "body.1"}),
        ("body.*", {"body.0", "body.1"}),
        ("*.0", {"body.0"}),
        ("head.weight", {"head"}),
        (nn.Conv1d, {"body.1"}),
        (nn.Sequential, {"body.0", "body.1"}),
        (nn.Embedding, set()),
        (lambda name, module: isinstance(module, nn.Linear) and name.startswith("body"), {"body.0"}),
    ],
)
def test_a_selector_takes_modules_and_what_lies_below(model, selector, taken):
    for form in (selector, [selector]):
        assert {*find_layers(model, include=form)} == taken
        assert {*find_layers(model)} - {*find_layers(model, exclude=form)} == taken


def test_a_name_that_matches_nothing_is_an_error(model):
    with pytest.raises(ValueError, match="exclude: expected names of modules; 'haed' matches none"):
        find_layers(model, exclude=["haed"])


def test_what_is_no_selector_is_an_error(model):
    with pytest.raises(TypeError, match="include: expected a name, a glob, a module type or a callable; got 3"):
        find_layers(model, include=[3])
    with pytest.raises(TypeError, match="include: expected one selector or a sequence of them; got 3"):
        find_layers(model, include=3)


@pytest.mark.parametrize("named", ["a", "a.0", "a.0.weight"])
def test_only_a_plain_string_names_a_frozen_tensor_or_a_module_around_it(named):
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2)), "ab": nn.Linear(2, 2)}).requires_grad_(False)
    assert [*find_layers(model, include=named)] == ["a.0"]
    for selector in ("a*", nn.Linear, lambda name, module: True):
        assert not find_layers(model, include=selector)
        assert [*find_layers(model, include=[named, selector])] == ["a.0"]


def test_a_name_with_the_signs_of_a_glob_is_itself_and_a_glob():
    model = nn.ModuleDict({"a?": nn.Linear(2, 2).requires_grad_(False), "ab": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    assert [*find_layers(model, include=["a?"])] == ["a?", "ab"]  # the frozen one as it is named
    assert [*find_layers(model, exclude=["a?"])] == ["b"]
