"""Laws of every distribution and every scheme on models whose layers have blocks."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import orthosparse
from contracts.defaults import other_defaults
from contracts.states import assert_same
from orthosparse.counts import count_of
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.layers import find_layers
from orthosparse.masks import counts_of
from orthosparse.orthogonality import orthogonality_score
from orthosparse.schemes import SCHEMES
from orthosparse.schemes.eoi import eoi
from orthosparse.structures import grid_of, structure_of, tiled

OPTIONS = {"synflow": {"rounds": 7}, "snip_iterative": {"rounds": 4}, "ai": {"iterations": 50}}
BLOCKS = {"stem": 1, "mix": 32, "pixel": 16, "qkv": 16, "narrow": 32, "wide": 32, "head": 1}
every_distribution = pytest.mark.parametrize("distribution", DISTRIBUTIONS)
schemes_of_blocks = pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "sao"])


class Blocky(nn.Module):
    """A kernel, convolutions of one tap with and without groups, fused matrices, and sides that 32 does not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.mix = nn.Conv2d(64, 64, 1, groups=2, bias=False)
        self.pixel = nn.Conv2d(64, 48, 1, bias=False)
        self.qkv = nn.Linear(48, 96, bias=False)
        self.narrow = nn.Linear(96, 64, bias=False)
        self.wide = nn.Linear(64, 96, bias=False)
        self.head = nn.Linear(96, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.pixel(F.relu(self.mix(F.relu(self.stem(x)))))).mean((2, 3))
        return self.head(F.relu(self.wide(F.relu(self.narrow(F.relu(self.qkv(x)))))))


def model():
    made, g = Blocky(), torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=g) / parameter[0].numel() ** 0.5)
    return made


SPLIT = {"qkv": 2, "wide": 3}


def layers_of(net):
    return find_layers(net, structure="block:32", split=SPLIT)


def batch():
    g = torch.Generator().manual_seed(2)
    return torch.randn(8, 3, 4, 4, generator=g), torch.arange(8)


def call(distribution, net, density, layers, seed=0):
    g, own = torch.Generator().manual_seed(seed), OPTIONS.get(distribution, {})
    return DISTRIBUTIONS[distribution](net, density, layers=layers, batch=batch(), generator=g, **own)


def assert_whole(layers, masks):
    for name, layer in layers.items():
        grid = grid_of(masks[name], layer.block)
        assert torch.equal(tiled(grid, layer.block, layer.shape), masks[name]), name


def test_layers_have_the_blocks_that_divide_each_of_their_matrices():
    net = model()
    assert {name: layer.block for name, layer in layers_of(net).items()} == BLOCKS
    assert find_layers(net, structure="block:32", split={"wide": 2})["wide"].block == 16  # of 48 rows each
    assert {layer.structure for layer in find_layers(net).values()} == {"entries"}


def test_floors_are_counted_in_blocks():
    layers = layers_of(model())
    assert layers["mix"].floor == 2 * 32 * 32  # a block for each group
    assert layers["wide"].floor == 3 * 32 * 32
    assert layers["narrow"].floor == 2 * 32 * 32
    assert layers["head"].floor == 10


@every_distribution
@pytest.mark.parametrize("density", [0.0, 0.07, 0.13, 0.5, 0.9, 1.0])
def test_masks_are_of_whole_blocks_and_entries_take_up_the_rest(distribution, density):
    net = model()
    layers = layers_of(net)
    masks = call(distribution, net, density, layers)
    assert_whole(layers, masks)
    numel = sum(layer.numel for layer in layers.values())
    if distribution == "dense_ends":
        ends = layers["stem"].numel + layers["head"].numel  # no entries are left between them
        assert abs(sum(counts_of(masks).values()) - ends - count_of(density, numel - ends)) <= 16 * 16 / 2
    else:
        assert sum(counts_of(masks).values()) == count_of(density, numel)


@every_distribution
def test_without_entries_the_total_is_off_by_half_of_the_smallest_block_at_most(distribution):
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    layers = find_layers(net, structure="block:32")
    assert [layer.block for layer in layers.values()] == [16, 32, 16]
    for density in (0.05, 0.3, 0.61):
        masks = call(distribution, net, density, layers)
        assert_whole(layers, masks)
        if distribution != "dense_ends":
            assert abs(sum(counts_of(masks).values()) - density * sum(m.numel() for m in masks.values())) <= 128


@pytest.mark.parametrize("distribution", ["magnitude", "snip", "synflow"])
def test_blocks_of_a_scored_layer_are_those_of_largest_mean_score(distribution):
    net, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(48, 96, bias=False)), batch()
    weight = torch.randn(96, 48, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        net[1].weight.copy_(weight)
    (slope,) = torch.autograd.grad(F.cross_entropy(net(x), y), net[1].weight)
    scores = {"magnitude": weight.abs(), "snip": (weight * slope).abs(), "synflow": weight.abs()}[distribution]
    best = scores.view(6, 16, 3, 16).mean((1, 3)).flatten().topk(4).indices
    options = {"rounds": 1} if distribution == "synflow" else {}
    layers = find_layers(net, structure="block:16")
    kept = DISTRIBUTIONS[distribution](net, 4 / 18, layers=layers, batch=(x, y), **options)["1"]
    assert int(kept.sum()) == 4 * 256
    assert set(best.tolist()) == set(kept[::16, ::16].flatten().nonzero()[:, 0].tolist())


def test_synflow_never_brings_a_block_back():
    net, before = model(), None
    layers = layers_of(net)
    for rounds in range(1, 6):  # the first rounds of a schedule of one factor a round
        masks = DISTRIBUTIONS["synflow"](net, 0.7**rounds, layers=layers, batch=batch(), rounds=rounds)
        if before is not None:
            assert all(bool((masks[name] <= before[name]).all()) for name in masks)
        before = masks


@schemes_of_blocks
@pytest.mark.parametrize("distribution", ["erk", "magnitude"])
def test_schemes_keep_whole_blocks_and_counts(scheme, distribution):
    net = model()
    layers = layers_of(net)
    given = call(distribution, net, 0.6, layers)
    g = torch.Generator().manual_seed(0)
    masks = SCHEMES[scheme](net, given, layers=layers, generator=g, **OPTIONS.get(scheme, {}))
    assert_whole(layers, masks)
    assert counts_of(masks) == counts_of(given)
    for name, layer in layers.items():
        assert not layer.parameter()[~masks[name]].any()


def test_sao_refuses_blocks_and_leaves_the_model():
    net = model()
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    with pytest.raises(ValueError, match=r"structure: sao has .* expected 'entries', got 'block:32' for 'mix'"):
        orthosparse.sparsify(net, 0.5, scheme="sao", structure="block:32", distribution="uniform")
    assert all(torch.equal(parameter, before[name]) for name, parameter in net.named_parameters())
    assert not orthosparse.masks_of(net)


@pytest.mark.parametrize("distribution", ["uniform", "erk", "grasp"])
def test_coins_of_the_released_code_are_refused(distribution):
    net = model()
    with pytest.raises(ValueError, match=r"compat: 'paper-code' has entries alone; .* got 'block:32' for 'mix'"):
        DISTRIBUTIONS[distribution](net, 0.5, layers=layers_of(net), batch=batch(), compat="paper-code")


@pytest.mark.parametrize("depthwise", ["center", "keep"])
def test_eoi_makes_every_matrix_of_blocks_orthogonal(depthwise):
    net = model().double()
    report = orthosparse.sparsify(
        net,
        0.6,
        structure="block:32",
        split=SPLIT,
        depthwise=depthwise,
        generator=torch.Generator().manual_seed(0),
    )
    layers = layers_of(net)
    assert_whole(layers, orthosparse.masks_of(net))
    for name, layer in layers.items():
        if name == "mix" and depthwise == "keep":
            continue
        for stack in layer.matrices(layer.weight().contiguous()):
            for matrix in stack:
                kernel = matrix.reshape(*matrix.shape[:2], *layer.shape[2:])
                assert orthogonality_score(kernel if kernel.dim() > 2 else matrix.squeeze(-1)) <= 1e-11, name
    assert report.got == report.asked == count_of(0.6, report.numel)


def test_what_a_layer_gets_depends_on_its_own_mask_and_name_alone():
    nets = [model(), model()]
    masks = call("erk", nets[0], 0.6, layers_of(nets[0]))
    some = {name: masks[name] for name in ("qkv", "narrow")}
    for net, given in zip(nets, (masks, some), strict=True):
        SCHEMES["eoi"](net, given, layers=layers_of(net), generator=torch.Generator().manual_seed(3))
    assert torch.equal(nets[0].qkv.weight, nets[1].qkv.weight)
    assert torch.equal(nets[0].narrow.weight, nets[1].narrow.weight)


def fours():
    return nn.Sequential(
        nn.Conv2d(12, 24, 1, groups=3), nn.Flatten(), nn.Linear(24, 48), nn.Linear(48, 16), nn.Linear(16, 20)
    )


@pytest.mark.parametrize("distribution", ["uniform", "er", "erk"])
@schemes_of_blocks
def test_2_4_gives_every_layer_half_of_its_weights_two_of_any_four(distribution, scheme):
    net, g = fours(), torch.Generator().manual_seed(0)
    options = {"split": {"2": 3}, **OPTIONS.get(scheme, {})}
    report = orthosparse.sparsify(
        net, 0.5, structure="2:4", distribution=distribution, scheme=scheme, generator=g, **options
    )
    assert [2 * row.got for row in report.rows] == [row.numel for row in report.rows]
    assert (report.asked, report.structure) == (report.got, "2:4")
    for name, layer in find_layers(fours(), split={"2": 3}).items():
        for matrix in layer.views(orthosparse.masks_of(net)[name].contiguous()):
            assert structure_of(matrix.squeeze(0)) == "2:4", name


@pytest.mark.parametrize(
    "option", [{"align": "mask"}, {"core": 0.5}, {"stop": "first"}, {"start": "permuted"}, {"angle": 1.0}], ids=str
)
def test_2_4_has_no_rotations_to_change_and_refuses_before_anything_is_touched(option):
    net, halves = fours(), two_of_four_masks(fours())
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    with pytest.raises(ValueError, match=f"{next(iter(option))}: expected its default with structure '2:4'"):
        eoi(net, halves, layers=find_layers(net, structure="2:4"), **option)
    assert all(torch.equal(parameter, before[name]) for name, parameter in net.named_parameters())


def test_2_4_is_drawn_so_that_there_is_nothing_to_align_it_to():
    nets = fours(), fours()
    nets[1].load_state_dict(nets[0].state_dict())
    for net, option in zip(nets, ({}, {"align": "mask"}), strict=True):
        orthosparse.sparsify(net, 0.5, structure="2:4", generator=torch.Generator().manual_seed(0), **option)
    first, second = (net.state_dict() for net in nets)
    assert all(torch.equal(first[name], second[name]) for name in first if name.endswith("weight_mask"))
    assert all(torch.equal(first[name], second[name]) for name in first if name.endswith("weight"))


def two_of_four_masks(net):
    g = torch.Generator().manual_seed(0)
    orthosparse.sparsify(net, 0.5, structure="2:4", generator=g)
    return orthosparse.masks_of(net)


def test_2_4_is_chosen_anew_in_every_layer():
    net = nn.Sequential(*(nn.Linear(32, 32) for _ in range(3)))
    report = orthosparse.sparsify(net, 0.5, structure="2:4", generator=torch.Generator().manual_seed(0))
    first, second, third = orthosparse.masks_of(net).values()
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    assert max(row.orthogonality for row in report.rows) < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0.4}, r"density: expected 0.5 with structure '2:4'; got 0.4"),
        (
            {"distribution": "magnitude"},
            r"structure: '2:4' is drawn, not scored \('0'\); expected distribution 'uniform'",
        ),
        ({"distribution": "dense_ends"}, r"structure: '2:4' has density 0.5 in every layer; this .* gives '0' 1"),
        ({"scheme": "sao"}, r"structure: sao has .* got '2:4' for '0'"),
        ({"compat": "paper-code"}, r"compat: 'paper-code' has entries alone"),
    ],
)
def test_2_4_refuses_what_is_no_half_of_every_layer_and_leaves_the_model(options, message):
    net = fours()
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    with pytest.raises(ValueError, match=message):
        orthosparse.sparsify(net, **{"density": 0.5, "structure": "2:4", **options})
    assert all(torch.equal(parameter, before[name]) for name, parameter in net.named_parameters())
    assert not orthosparse.masks_of(net)


def test_layers_that_four_does_not_divide_are_named_to_be_excluded():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 10), nn.Conv2d(4, 4, 3))
    with pytest.raises(ValueError, match=r"structure: '2:4' takes matrices whose sides four divides; exclude 1, 2$"):
        orthosparse.sparsify(net, 0.5, structure="2:4")
    assert orthosparse.sparsify(net, 0.5, structure="2:4", exclude=["1", "2"]).got == 32


@pytest.mark.parametrize("structure", ["block:32", "2:4"])
@every_distribution
def test_the_default_device_and_dtype_do_not_matter_to_distributions(distribution, structure):
    if structure == "2:4" and distribution not in ("er", "erk", "uniform"):
        return
    net = model()
    layers = find_layers(net, structure=structure, exclude=["stem", "head"] if structure == "2:4" else [])
    expected = call(distribution, net, 0.5, layers)
    inputs = batch()
    with other_defaults():
        g, own = torch.Generator("cpu").manual_seed(0), OPTIONS.get(distribution, {})
        masks = DISTRIBUTIONS[distribution](net, 0.5, layers=layers, batch=inputs, generator=g, **own)
    assert_same(expected, masks)


@pytest.mark.parametrize("options", [{}, {"align": "mask"}, {"core": 0.7}], ids=str)
@pytest.mark.parametrize("structure", ["block:32", "2:4"])
@schemes_of_blocks
def test_the_default_device_and_dtype_do_not_matter_to_schemes(scheme, structure, options):
    if options and (scheme != "eoi" or structure == "2:4"):
        return
    nets = model(), model()
    exclude = ["stem", "head"] if structure == "2:4" else []
    layers = [find_layers(net, structure=structure, exclude=exclude) for net in nets]
    masks = call("uniform" if structure == "2:4" else "magnitude", nets[0], 0.5, layers[0])
    options = {**OPTIONS.get(scheme, {}), **options}
    expected = SCHEMES[scheme](nets[0], masks, layers=layers[0], generator=torch.Generator().manual_seed(0), **options)
    with other_defaults():
        g = torch.Generator("cpu").manual_seed(0)
        found = SCHEMES[scheme](nets[1], masks, layers=layers[1], generator=g, **options)
    assert_same(expected, found)
    assert all(map(torch.equal, nets[0].parameters(), nets[1].parameters()))


@pytest.mark.gpu
@every_distribution
def test_blocks_are_whole_and_counted_on_a_gpu_too(distribution):
    net = model().cuda()
    layers = layers_of(net)
    own, inputs = OPTIONS.get(distribution, {}), tuple(tensor.cuda() for tensor in batch())
    g = torch.Generator().manual_seed(0)
    masks = DISTRIBUTIONS[distribution](net, 0.3, layers=layers, batch=inputs, generator=g, **own)
    assert {mask.device.type for mask in masks.values()} == {"cuda"}
    assert_whole(layers, masks)
    if distribution != "dense_ends":
        assert sum(counts_of(masks).values()) == count_of(0.3, sum(layer.numel for layer in layers.values()))


@pytest.mark.gpu
@pytest.mark.parametrize("structure", ["block:32", "2:4"])
@schemes_of_blocks
def test_the_device_changes_no_bit_of_a_start(scheme, structure):
    nets = model(), model().cuda()
    exclude = ["stem", "head"] if structure == "2:4" else []
    for net in nets:
        g = torch.Generator().manual_seed(0)
        orthosparse.sparsify(
            net, 0.5, scheme=scheme, structure=structure, exclude=exclude, generator=g, **OPTIONS.get(scheme, {})
        )
    for (name, here), there in zip(nets[0].state_dict().items(), nets[1].state_dict().values(), strict=True):
        assert torch.equal(here, there.cpu()), name
