"""Laws of EOI laid onto a mask, on every tiny model."""

import pytest
import torch
from torch import nn

import orthosparse
from contracts.models import MODELS
from contracts.scores import score_through_stride
from contracts.seeded import seeded
from contracts.states import assert_same
from orthosparse.layers import find_layers
from orthosparse.masks import counts_of, draw, overlap
from orthosparse.orthogonality import orthogonality_score
from orthosparse.schemes.eoi import eoi

everywhere = pytest.mark.parametrize("kind", MODELS)
OPTIONS = [{}, {"core": 0.4}, {"tap": "center"}, {"tap": "random"}, {"depthwise": "shift"}, {"depthwise": "center"}]


def masks_for(model, density=0.4):
    """Masks of the largest products of a row's, a column's and an entry's score; none below its layer's floor."""
    generator, masks = seeded(3), {}
    for name, layer in find_layers(model).items():
        scores = torch.randn(layer.shape, generator=generator)
        for side, size in enumerate(layer.shape):
            shape = [size if axis == side else 1 for axis in range(len(layer.shape))]
            scores = scores + torch.randn(shape, generator=generator)
        count = max(layer.floor, round(density * layer.numel))
        masks[name] = torch.zeros(layer.numel, dtype=torch.bool)
        masks[name][scores.flatten().topk(count).indices] = True
        masks[name] = masks[name].view(layer.shape)
    return masks


@everywhere
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_aligned_weights_are_exactly_orthogonal_in_exact_counts(kind, options):
    model = MODELS[kind].make().double()
    masks = masks_for(model)
    aligned = eoi(model, masks, align="mask", gain=1.3, generator=seeded(), **options)
    assert counts_of(aligned) == counts_of(masks)
    for name, layer in find_layers(model).items():
        assert bool((layer.parameter()[~aligned[name]] == 0).all())
        if layer.groups > 1 and "depthwise" not in options:
            continue
        for stack in layer.matrices(layer.parameter().detach().contiguous()):
            for matrix in stack:
                assert score_through_stride(layer, matrix, gain=1.3) < 1e-12


@everywhere
def test_alignment_overlaps_the_mask_more_and_a_core_lets_it_do_more_still(kind):
    model = MODELS[kind].make()
    masks, found = masks_for(model), []
    for options in ({}, {"align": "mask"}, {"align": "mask", "core": 0.2}):
        shared = overlap(masks, eoi(model, masks, generator=seeded(), depthwise="shift", **options))
        found.append(sum(shared.values()) / len(shared))
    assert found[0] < found[1] < found[2]


@everywhere
def test_without_alignment_only_the_count_of_a_mask_matters(kind):
    first, second = MODELS[kind].make(), MODELS[kind].make()
    masks = masks_for(first)
    others = {name: draw(mask.shape, int(mask.sum()), generator=seeded(9)) for name, mask in masks.items()}
    a, b = (eoi(m, given, generator=seeded(), depthwise="shift") for m, given in ((first, masks), (second, others)))
    assert all(torch.equal(a[name], b[name]) for name in masks)


@everywhere
@pytest.mark.parametrize("options", [{"align": "mask", "core": 0.5, "depthwise": "shift"}, {"align": "live"}], ids=str)
def test_a_layer_depends_on_the_seed_its_name_and_its_own_mask_alone(kind, options):
    model = MODELS[kind].make()
    masks = masks_for(model)
    whole = eoi(model, masks, generator=seeded(), **options)
    for name in masks:
        assert torch.equal(eoi(model, {name: masks[name]}, generator=seeded(), **options)[name], whole[name])
    other = eoi(model, masks, generator=seeded(1), **options)
    assert any(not torch.equal(other[name], whole[name]) for name in masks)


@everywhere
@pytest.mark.parametrize("options", [{}, {"core": 0.4}, {"depthwise": "shift"}, {"strided": "delta"}], ids=str)
def test_live_weights_leave_out_the_channels_that_a_mask_leaves_out_in_exact_counts(kind, options):
    model = MODELS[kind].make().double()
    masks = masks_for(model, density=0.1)
    for mask in masks.values():
        mask[:1] = False  # of a transposed convolution an input, else an output
    live = eoi(model, masks, align="live", floor="error", gain=1.3, generator=seeded(), **options)
    assert counts_of(live) == counts_of(masks)
    for name, layer in find_layers(model).items():
        weight, mask = layer.parameter().detach(), masks[name]
        assert bool((weight[~live[name]] == 0).all())
        if layer.groups > 1:
            continue
        for found, asked in zip(layer.views(live[name]), layer.views(mask), strict=True):
            used, given = (each.flatten(0, 1).any(-1) for each in (found, asked))
            assert not (used.any(1) & ~given.any(1)).any()
            assert not (used.any(0) & ~given.any(0)).any()


def test_where_a_mask_uses_every_channel_live_weights_are_the_aligned_ones():
    states = []
    for align in ("mask", "live"):
        model = nn.Sequential(nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5))
        masks = masks_for(model, density=0.5)
        for mask in masks.values():
            mask[:, 0] = mask[0] = True
        eoi(model, masks, align=align, generator=seeded())
        states.append([model[0].weight.detach(), model[3].weight.detach()])
    assert all(torch.equal(*pair) for pair in zip(*states, strict=True))


def test_no_layer_is_below_its_floor_where_channels_may_stay_empty():
    tiny = MODELS["mlp"]
    report = orthosparse.sparsify(
        tiny.make(), 0.05, distribution="snip", align="live", floor="error", batch=tiny.batch(), generator=seeded()
    )
    assert [row.got for row in report.rows] == [row.asked for row in report.rows]


def test_live_blocks_are_orthogonal_and_an_emptied_layer_stays_empty():
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 48, bias=False)).double()
    with torch.no_grad():
        model[0].weight.fill_(1e-3)
        model[1].weight.fill_(1.0)
        model[1].weight[:16] = model[1].weight[:, 32:48] = 1e-2  # a row and a column of blocks, too small to be chosen
    report = orthosparse.sparsify(
        model, 6 / 28, distribution="magnitude", structure="block:16", align="live", generator=seeded()
    )
    assert [row.got for row in report.rows] == [0, 6 * 256]
    assert "0: empty, nothing passes" in report.warnings
    values = torch.linalg.svdvals(model[1].weight.detach())
    torch.testing.assert_close(values, torch.tensor([1.0] * 32 + [0.0] * 16).double())


def test_fused_parts_keep_the_counts_that_the_mask_gives_them_but_for_their_floors():
    attention = nn.MultiheadAttention(8, 2).double()
    mask = torch.zeros(24, 8, dtype=torch.bool)
    mask[:8, :5] = mask[8:16, :2] = True  # 40 for the queries, 16 for the keys, none for the values
    result = eoi(attention, {"in_proj_weight": mask}, align="mask", generator=seeded())["in_proj_weight"]
    # The values' floor, 8, comes from the others in proportion to what they have above theirs: 32 and 8.
    assert [int(part.sum()) for part in result.chunk(3)] == [34, 14, 8]
    assert all(orthogonality_score(part) < 1e-12 for part in attention.in_proj_weight.detach().chunk(3))


@pytest.mark.parametrize("distribution", ["uniform", "er", "erk"])
@everywhere
def test_with_random_masks_alignment_changes_no_bit(kind, distribution):
    tiny, states = MODELS[kind], []
    for options in ({}, {"align": "mask"}):
        model = tiny.make()
        orthosparse.sparsify(model, 0.4, distribution=distribution, generator=seeded(), **options)
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("distribution", ["snip", "grasp", "magnitude"])
def test_the_report_says_how_much_of_a_saliency_mask_was_kept(distribution):
    tiny, found = MODELS["mlp"], []
    for options in ({"scheme": "base"}, {"align": "mask"}, {"align": "none"}):
        report = orthosparse.sparsify(
            tiny.make(), 0.4, distribution=distribution, batch=tiny.batch(), generator=seeded(), **options
        )
        found.append(sum(row.overlap for row in report.rows) / len(report.rows))
    assert found[0] > found[1] > found[2]
    assert "overlap" in str(report).splitlines()[0]


@pytest.mark.parametrize("distribution", ["snip", "magnitude"])
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_sparsify_keeps_the_places_that_scores_chose_by_default(kind, distribution):
    tiny, states = MODELS[kind], []
    for options in ({}, {"align": "mask"}, {"align": "none"}):
        model = tiny.make()
        scored = {"distribution": distribution, "batch": tiny.batch(), "floor": "minimal"}
        orthosparse.sparsify(model, 0.4, generator=seeded(), **scored, **options)
        states.append(model.state_dict())
    default, mask, none = states
    assert_same(default, mask)
    assert any(not torch.equal(default[name], none[name]) for name in default)


def test_a_starved_layer_is_raised_where_its_scores_are_and_the_rich_give_their_least():
    model = nn.Sequential(nn.Linear(30, 20, bias=False), nn.Linear(20, 20, bias=False)).double()
    with torch.no_grad():
        model[0].weight.normal_(generator=seeded()).mul_(10)
        model[1].weight.normal_(generator=seeded(1))
        favoured = torch.randperm(20, generator=seeded(2))
        model[1].weight[torch.arange(20), favoured] = 3.0  # one entry in each row and column, too small to be chosen
    before = [layer.weight.detach().abs() for layer in model]
    report = orthosparse.sparsify(model, 0.3, distribution="magnitude", align="mask", core=0.0, generator=seeded())
    assert report.rows[1].note == "raised to its floor 20"
    assert int(orthosparse.masks_of(model)["1"][torch.arange(20), favoured].sum()) == 20
    given, masks = before[0] >= before[0].flatten().topk(report.rows[0].asked).values.min(), orthosparse.masks_of(model)
    lost = before[0][given & ~masks["0"]]
    assert lost.mean() < before[0][given & masks["0"]].mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"align": "scores"}, "align: expected one of live, mask, none; got 'scores'"),
        ({"tap": "mask"}, 'tap: "mask" expects align="mask"'),
        ({"core": 2.0}, r"core: expected a number in \[0, 1\]; got 2.0"),
        ({"core": 0.5, "center_density": 0.5}, "core: expected None beside center_density; got 0.5 and 0.5"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_any_weight_is_touched(options, message):
    model = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(4, 4, 3))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=message):
        eoi(model, masks_for(model), **options)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
