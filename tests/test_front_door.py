import json
import logging
import re

import pytest
import torch
from torch import nn

import orthosparse
from contracts.models import MODELS
from contracts.ranks import on_two_ranks, same_on_all
from contracts.states import assert_same, state_of
from orthosparse import front_door, masking
from orthosparse.counts import count_of
from orthosparse.hardware import on_threads
from orthosparse.structures import structure_of

FREE = ("uniform", "er", "erk", "magnitude")


@pytest.mark.parametrize("scheme", ["base", "ai", "eoi"])
@pytest.mark.parametrize("distribution", sorted({"snip", "grasp", *FREE}))
@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_whole_count_is_exact_and_off_the_mask_all_is_zero(name, distribution, scheme):
    tiny = MODELS[name]
    model = tiny.make()
    options = {"iterations": 20} if scheme == "ai" else {}
    report = orthosparse.sparsify(
        model,
        0.4,
        distribution=distribution,
        scheme=scheme,
        batch=tiny.batch(),
        generator=torch.Generator().manual_seed(1),
        **options,
    )
    masks = orthosparse.masks_of(model)
    numel = sum(mask.numel() for mask in masks.values())
    assert report.got == sum(int(mask.sum()) for mask in masks.values()) == count_of(0.4, numel) == report.asked
    for layer in orthosparse.find_layers(model).values():
        assert bool((layer.parameter()[~masks[layer.name]] == 0).all())
        assert bool((layer.weight()[~masks[layer.name]] == 0).all())
    assert tiny.make()(tiny.batch()[0]).shape == model(tiny.batch()[0]).shape


@pytest.mark.parametrize("name", sorted(MODELS))
def test_eoi_layers_are_orthogonal_at_the_rounding_floor(name):
    model = MODELS[name].make().double()
    report = orthosparse.sparsify(model, 0.5, depthwise="center", gain=1.3, generator=torch.Generator().manual_seed(1))
    # One tap cannot pass all that twelve outputs could take of a stride: see the warnings.
    assert all(row.orthogonality < 1e-5 for row in report.rows if row.rank != (8, 12))


@pytest.mark.parametrize("scheme", ["eoi", "ai", "sao", "base"])
def test_a_split_convolution_is_made_and_measured_block_by_block(scheme):
    model = nn.ModuleDict({"to_qkv": nn.Conv1d(16, 48, 1, bias=False)}).double()
    options = {"ai": {"iterations": 20}}.get(scheme, {})
    report = orthosparse.sparsify(model, 0.25, scheme=scheme, split={"to_qkv": 3}, **options)
    weight = model["to_qkv"].weight.detach()[..., 0]
    squares = sum(float((block @ block.T - torch.eye(16)).square().sum()) for block in weight.chunk(3))
    assert report.rows[0].orthogonality == pytest.approx(squares**0.5, rel=1e-5, abs=1e-5)
    assert scheme not in ("eoi", "sao") or squares < 1e-24


def test_the_floor_of_a_split_convolution_is_the_sum_over_its_blocks():
    model = nn.Sequential(nn.Conv1d(16, 16, 1, bias=False))
    with pytest.raises(ValueError, match="0 has 8 of 16"):
        orthosparse.sparsify(model, 8 / 256, split={"0": 4}, floor="error")


def test_one_seed_gives_one_model_and_the_global_generator_rests():
    before = torch.get_rng_state()
    first, second = (MODELS["cnn"].make() for _ in range(2))
    for model in (first, second):
        orthosparse.sparsify(model, 0.3, generator=torch.Generator().manual_seed(7))
    assert_same(state_of(first), state_of(second))
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_generator_the_report_holds_the_seed():
    model = MODELS["mlp"].make()
    report = orthosparse.sparsify(model, 0.3)
    assert str(report.seed) in str(report)


@pytest.mark.parametrize("first", [{}, {"generator": torch.Generator().manual_seed(5)}, {"seed": 3}])
def test_the_seed_of_a_report_repeats_the_call(first):
    models = [MODELS["cnn"].make() for _ in range(2)]
    report = orthosparse.sparsify(models[0], 0.3, bias_std=0.1, **first)
    again = orthosparse.sparsify(models[1], 0.3, bias_std=0.1, seed=report.seed)
    assert_same(state_of(models[0]), state_of(models[1]))
    assert report == again


def test_a_layer_does_not_depend_on_the_others():
    """Another layer kept dense, another order of layers: this one's weights are the same for the same count."""
    whole, part = MODELS["mlp"].make(), MODELS["mlp"].make()
    orthosparse.sparsify(whole, 0.5, distribution="uniform", generator=torch.Generator().manual_seed(7))
    orthosparse.sparsify(part, 0.5, distribution="uniform", exclude=["0"], generator=torch.Generator().manual_seed(7))
    assert torch.equal(whole.state_dict()["2.weight"], part.state_dict()["2.weight"])


def test_biases_are_drawn_and_norms_are_not_touched():
    model = MODELS["batch_norm"].make()
    norms = {n: v for n, v in state_of(model).items() if n.startswith(("1.", "4.", "10."))}
    orthosparse.sparsify(model, 0.5, bias_std=0.5, generator=torch.Generator().manual_seed(7))
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in norms.items())
    assert 0.1 < float(after["9.bias"].std()) < 1.5
    zeros = MODELS["batch_norm"].make()
    orthosparse.sparsify(zeros, 0.5)
    assert bool((zeros.state_dict()["9.bias"] == 0).all())


class TestFloors:
    """64 x 64 beside 64 x 4: uniform density 1/64 gives the second 4 entries, its floor, and the first its 64."""

    def make(self):
        return nn.ModuleDict({"wide": nn.Linear(200, 10), "square": nn.Linear(30, 30)})

    def test_raise_keeps_the_total_and_says_so(self, caplog):
        model = self.make()
        with caplog.at_level(logging.WARNING):
            report = orthosparse.sparsify(model, 0.02, distribution="uniform")
        rows = {row.layer: row for row in report.rows}
        assert rows["square"].asked == 18
        assert rows["square"].got == 30
        assert rows["wide"].got == 40 - 12
        assert report.got == report.asked == 58
        assert rows["square"].note == "raised to its floor 30"
        assert rows["wide"].note == "gave 12"
        assert "square" in caplog.text
        assert all(row.orthogonality < 1e-6 for row in report.rows)

    def test_partial_keeps_the_counts(self):
        report = orthosparse.sparsify(self.make(), 0.02, distribution="uniform", floor="partial")
        square = report.rows[1]
        assert (square.asked, square.got, square.note) == (18, 18, "partial: floor 30")
        assert square.orthogonality == pytest.approx(12**0.5)
        assert "square: 12 of 30 outputs unreachable" in report.warnings

    def test_error_names_the_layers_and_the_least_density(self):
        model = self.make()
        before = state_of(model)
        with pytest.raises(ValueError, match=r"square has 18 of 30; density 0\.01379 is the least"):
            orthosparse.sparsify(model, 0.02, distribution="uniform", floor="error")
        assert_same(before, state_of(model))

    def test_a_density_below_all_floors_is_refused_with_the_least_one(self):
        with pytest.raises(ValueError, match=r"expected at least 40 entries.*got 29; density 0\.01379"):
            orthosparse.sparsify(self.make(), 0.01, distribution="uniform")
        assert orthosparse.sparsify(self.make(), 0.013794, distribution="uniform").got == 40


def test_a_seed_beside_a_generator_is_refused():
    with pytest.raises(ValueError, match="seed: expected a seed or a generator; got both"):
        orthosparse.sparsify(nn.Linear(8, 8), 0.5, seed=1, generator=torch.Generator())


@pytest.mark.parametrize("sparsify", [orthosparse.sparsify, orthosparse.prune])
def test_a_layer_that_cannot_get_a_mask_is_refused_before_weights_are_scored(sparsify):
    model, scored = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), []

    def scores(model, density, *, layers, **data):
        scored.append(layers)
        return orthosparse.distributions.DISTRIBUTIONS["magnitude"](model, density, layers=layers, **data)

    nn.utils.parametrizations.spectral_norm(model[1])
    before = state_of(model)
    with pytest.raises(ValueError, match="model: '1' has another parametrization; remove that first"):
        sparsify(model, 0.5, distribution=scores)
    assert not scored
    assert_same(before, model.state_dict())
    assert sparsify(model, 0.5, distribution=scores, exclude=["1"]).got == 32


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"density": 1.5}, ValueError, r"density: expected a number in \[0, 1\]; got 1.5"),
        ({"density": float("nan")}, ValueError, "density: expected"),
        ({"density": True}, TypeError, "density: expected"),
        ({"distribution": "ekr"}, ValueError, "distribution: expected one of dense_ends, er, erk, grasp"),
        ({"seed": 0.5}, TypeError, "seed: expected an integer; got 0.5"),
        ({"scheme": "eio"}, ValueError, "scheme: expected one of ai, base, eoi, sao, scaled; got 'eio'"),
        ({"floor": "up"}, ValueError, "floor: expected one of error, minimal, partial, raise; got 'up'"),
        ({"exclude": ["haed"]}, ValueError, "exclude: expected names of modules; 'haed'"),
        ({"exclude": [nn.Linear]}, ValueError, "model: expected at least one layer to sparsify; found none"),
        ({"distribution": "snip"}, ValueError, "batch"),
        ({"colour": "red"}, ValueError, "got 'colour' .*scheme 'eoi' takes"),
        ({"depthwise": "none"}, ValueError, "depthwise"),
        (
            {"distribution": "snip", "batch": (torch.zeros(2, 99), torch.zeros(2, dtype=torch.int64))},
            ValueError,
            "batch",
        ),
        (
            {"distribution": "snip", "batch": (torch.full((2, 12), torch.nan), torch.zeros(2, dtype=torch.int64))},
            ValueError,
            "NaN|finite",
        ),
        ({"scheme": "sao", "density": 0.37}, ValueError, "density|degree|divis"),
    ],
    ids=str,
)
def test_bad_input_is_named_and_the_model_is_unchanged(wrong, error, message):
    model = MODELS["mlp"].make()
    before = state_of(model)
    with pytest.raises(error, match=message):
        orthosparse.sparsify(model, **{"density": 0.5, **wrong})
    assert_same(before, state_of(model))
    assert not orthosparse.masks_of(model)


@pytest.mark.parametrize("scheme", ["ai", "base", "eoi", "sao", "scaled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("scale", ["gain", "bias_std"])
def test_scales_that_a_dtype_does_not_hold_are_refused_before_anything_changes(scheme, dtype, scale):
    model = nn.Sequential(nn.Linear(8, 8).double(), nn.Linear(8, 8).to(dtype))
    before = state_of(model)
    with pytest.raises(ValueError, match=f"{scale}: expected .*at most"):
        orthosparse.sparsify(model, 0.5, distribution="uniform", scheme=scheme, **{scale: 1e39})
    assert_same(before, state_of(model))
    masks = {name: torch.ones(8, 8, dtype=torch.bool) for name in "01"}
    with pytest.raises(ValueError, match=f"{scale}: expected .*at most"):  # a scheme by itself has nobody to undo it
        orthosparse.schemes.SCHEMES[scheme](model, masks, **{scale: 1e39})
    assert_same(before, state_of(model))


@pytest.mark.parametrize("scheme", ["base", "eoi", "sao", "scaled"])
def test_the_largest_scales_that_are_taken_give_finite_parameters(scheme):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    largest = torch.finfo(torch.float32).max
    orthosparse.sparsify(model, 0.5, distribution="uniform", scheme=scheme, gain=largest, bias_std=largest / 9)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_the_least_density_that_is_advised_is_taken():
    model = nn.Sequential(*[nn.Linear(1999, 1999, bias=False) for _ in range(3)])
    with pytest.raises(ValueError, match="is the least for this model") as refused:
        orthosparse.sparsify(model, 0.0005)
    advised = float(re.search(r"density (\S+) is the least", str(refused.value))[1])
    assert orthosparse.sparsify(model, advised).got >= 3 * 1999


BAD_WEIGHTS = {
    "complex": (lambda m: m.to(torch.complex64), TypeError, "'0' has torch.complex64"),
    "float8": (lambda m: m.to(torch.float8_e4m3fn), TypeError, "'0' has torch.float8_e4m3fn"),
    "meta": (lambda m: m.to("meta"), ValueError, "'0' is on the meta device"),
}


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature:UserWarning")
@pytest.mark.parametrize("scheme", ["ai", "base", "eoi", "sao", "scaled"])
@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_weights_that_no_scheme_fills_are_refused_by_layer_before_anything_changes(case, scheme):
    change, error, message = BAD_WEIGHTS[case]
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    change(model[0])
    parameters, before = [*model.parameters()], model[1].weight.detach().clone()
    with pytest.raises(error, match=f"model: expected .*{message}"):
        orthosparse.sparsify(model, 0.5, scheme=scheme, distribution="uniform")
    assert [id(p) for p in model.parameters()] == [id(p) for p in parameters]
    assert torch.equal(model[1].weight, before)
    assert not orthosparse.masks_of(model)
    masks = {"0": torch.ones(8, 8, dtype=torch.bool)}
    with pytest.raises(error, match=message):
        orthosparse.schemes.SCHEMES[scheme](model, masks)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@pytest.mark.parametrize("scheme", ["ai", "base", "eoi", "sao", "scaled"])
def test_a_layer_without_entries_is_left_out_by_every_scheme_and_told(scheme):
    model = nn.Sequential(nn.Linear(0, 8), nn.Linear(8, 8))
    report = orthosparse.sparsify(model, 0.5, scheme=scheme)
    assert [row.layer for row in report.rows] == ["1"]
    assert report.left == {"0": "without entries"}
    with pytest.raises(ValueError, match=r"found none \(left dense: 1 without entries \(0\)\)"):
        orthosparse.sparsify(nn.Sequential(nn.Linear(0, 8)), 0.5, scheme=scheme)


@pytest.mark.parametrize(("scheme", "step"), [("base", "synchronize"), ("eoi", "attach")])
def test_what_fails_after_the_masks_are_on_takes_them_off_again(monkeypatch, scheme, step):
    model = nn.Sequential(nn.LSTM(4, 4), nn.Linear(4, 4))
    before, names = state_of(model), [name for name, _ in model.named_parameters()]
    types, work = [type(module) for module in model.modules()], getattr(masking, step)

    def fails_at_its_end(*given, **named):
        work(*given, **named)
        raise ZeroDivisionError

    monkeypatch.setattr(masking, step, fails_at_its_end)
    with pytest.raises(ZeroDivisionError):
        orthosparse.sparsify(model, 0.5, scheme=scheme, bias_std=1.0)
    assert_same(before, state_of(model))
    assert [name for name, _ in model.named_parameters()] == names
    assert [type(module) for module in model.modules()] == types


def test_an_interrupt_in_the_last_layer_leaves_the_first_as_it_was(monkeypatch):
    model, names = MODELS["mlp"].make(), []
    before, measured = state_of(model), front_door.row_of

    def interrupted(layer, *given, **named):
        names.append(layer.name)
        if len(names) == len(orthosparse.find_layers(model)):
            raise KeyboardInterrupt
        return measured(layer, *given, **named)

    monkeypatch.setattr(front_door, "row_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        orthosparse.sparsify(model, 0.5, bias_std=1.0)
    assert len(names) > 1
    assert_same(before, state_of(model))


@pytest.mark.parametrize("part", ["left_dense", "label", "_entries"])
@pytest.mark.parametrize("scheme", ["eoi", "base"])
def test_what_fails_in_the_report_leaves_the_model_as_it_was(monkeypatch, scheme, part):
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    before = state_of(model)

    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(front_door, part, interrupted)
    with pytest.raises(KeyboardInterrupt):
        orthosparse.sparsify(model, 0.5, scheme=scheme, structure="block:16")
    assert_same(before, state_of(model))


@pytest.mark.parametrize("make_sparse", [orthosparse.sparsify, orthosparse.prune])
@pytest.mark.parametrize("view", [lambda weight: weight, lambda weight: weight.T], ids=["itself", "transposed"])
def test_layers_that_share_memory_without_being_tied_are_refused_since_one_would_overwrite_the_other(view, make_sparse):
    model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40))
    model[1].weight = nn.Parameter(view(model[0].weight.detach()))
    before = state_of(model)
    with pytest.raises(ValueError, match="model: expected weights in memory of their own; '1' lies in that of '0'"):
        make_sparse(model, 0.2)
    assert_same(before, state_of(model))
    report = make_sparse(model, 0.2, exclude=["1"])
    assert int(model[0].weight_mask.sum()) == report.got


def test_bits_and_counts_do_not_depend_on_the_number_of_threads():
    states, reports = [], []
    for threads in (1, 2, 5):
        with on_threads(threads):
            model = nn.Sequential(nn.Linear(700, 900), nn.Linear(900, 700), nn.Linear(700, 40), nn.Conv2d(40, 50, 3))
            reports.append(orthosparse.sparsify(model, 0.1, bias_std=0.5, generator=torch.Generator().manual_seed(3)))
            states.append(model.state_dict())
    counts = [[(row.layer, row.asked, row.got, row.note) for row in report.rows] for report in reports]
    assert counts[0] == counts[1] == counts[2]
    assert all(row.orthogonality < 1e-5 for report in reports for row in report.rows)
    for state in states[1:]:
        assert_same(states[0], state)


def test_halves_go_up():
    assert orthosparse.sparsify(nn.Linear(5, 1), 0.5).got == 3


def test_the_report_on_a_float64_model_is_measured_in_float64():
    report = orthosparse.sparsify(MODELS["cnn"].make().double(), 0.5, exclude=["grouped", "depthwise", "shortcut"])
    assert all(row.orthogonality < 1e-13 for row in report.rows)
    half = orthosparse.sparsify(MODELS["mlp"].make().bfloat16(), 0.5)
    assert all(1e-6 < row.orthogonality < 0.1 for row in half.rows)


def test_a_second_call_points_to_replace_masks():
    model = MODELS["mlp"].make()
    orthosparse.sparsify(model, 0.5)
    before = state_of(model)
    with pytest.raises(ValueError, match="sparsified already: use replace_masks"):
        orthosparse.sparsify(model, 0.2)
    assert_same(before, state_of(model))


def test_options_reach_the_one_who_takes_them():
    model = MODELS["cnn"].make()
    report = orthosparse.sparsify(
        model, 0.3, distribution="synflow", batch=MODELS["cnn"].batch(), rounds=3, tap="random"
    )
    assert report.got == report.asked


def test_a_full_density_leaves_nothing_out():
    report = orthosparse.sparsify(MODELS["cnn"].make(), 1.0)
    assert report.got == report.numel


def test_the_wrapped_model_is_sparsified_under_its_own_names():
    model = MODELS["mlp"].make()
    orthosparse.sparsify(nn.DataParallel(model), 0.5)
    assert [*orthosparse.masks_of(model)] == ["0", "2", "4", "6"]


class TestReport:
    @pytest.fixture
    def report(self):
        return orthosparse.sparsify(
            MODELS["cnn"].make(), 0.3, exclude=["head"], generator=torch.Generator().manual_seed(0)
        )

    def test_prints_one_line_a_layer_and_the_total(self, report):
        lines = str(report).splitlines()
        assert lines[0].split()[:4] == ["layer", "shape", "asked", "got"]
        assert [line.split()[0] for line in lines[2:7]] == ["stem", "strided", "grouped", "shortcut", "depthwise"]
        assert f"{report.got:,} of {report.numel:,} weights active" in str(report)
        assert "stride 2: reads 1 of 4 pixels" in lines[5]
        assert "pixels" not in lines[3]
        assert lines[-1] == "warning: shortcut: rank 8 of 12 through its stride"

    def test_is_json(self, report):
        again = json.loads(json.dumps(report.to_dict()))
        assert again["got"] == report.got
        assert again["rows"][0]["layer"] == "stem"

    def test_renders_in_a_notebook(self, report):
        assert report._repr_html_().count("<tr>") == 1 + 5

    def test_empty_layers_are_said(self):
        report = orthosparse.sparsify(MODELS["mlp"].make(), 0.0, scheme="base")
        assert "0: empty, nothing passes" in report.warnings


def _seeded_apart(rank):
    tiny = MODELS["batch_norm"]
    for distribution in ("erk", "snip"):
        model = tiny.make(seed=rank)
        orthosparse.sparsify(
            model,
            0.4,
            distribution=distribution,
            batch=tiny.batch(seed=rank),
            generator=torch.Generator().manual_seed(rank),
        )
        for name, value in model.state_dict().items():
            if "running" in name or "tracked" in name:
                continue
            assert same_on_all(value), (distribution, name)


def test_ranks_seeded_apart_end_with_one_model(tmp_path):
    on_two_ranks(_seeded_apart, tmp_path)


def _sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for name, scheme in (("mlp", "eoi"), ("cnn", "eoi"), ("cnn", "ai"), ("transformer", "eoi")):
        alone, before, after = (MODELS[name].make() for _ in range(3))
        options = {"iterations": 5} if scheme == "ai" else {"bias_std": 0.1}

        def start(model, scheme=scheme, options=options):
            # The sharded ranks take rank 0's seed; the model alone is given that one.
            seed = 0 if not hasattr(next(model.parameters()), "placements") else rank
            return orthosparse.sparsify(
                model, 0.4, scheme=scheme, generator=torch.Generator().manual_seed(seed), **options
            )

        start(alone)
        start(before)
        fully_shard(before, mesh=mesh)
        fully_shard(after, mesh=mesh)
        start(after)
        for key, value in alone.state_dict().items():
            for other in (before, after):
                theirs = other.state_dict()[key]
                theirs = theirs.full_tensor() if hasattr(theirs, "full_tensor") else theirs
                assert torch.equal(theirs, value), (name, scheme, key)


def test_before_or_after_fully_shard_the_weights_are_those_of_one_device(tmp_path):
    on_two_ranks(_sharded, tmp_path)


class TestOnesOwnScript:
    """Weight tying, a layer with two weight tensors, a frozen backbone."""

    class Gated(nn.Module):
        __orthosparse__ = {"w_in": "in out", "w_out": "out in"}  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.w_in, self.w_out = nn.Parameter(torch.zeros(12, 2 * 20)), nn.Parameter(torch.zeros(12, 20))

        def forward(self, x):
            left, gate = (x @ self.w_in).chunk(2, -1)
            return x + (left * gate.sigmoid()) @ self.w_out.T

    def make(self):
        model = nn.ModuleDict({"words": nn.Embedding(30, 12), "old": nn.Linear(12, 12).requires_grad_(False)})
        model["gated"], model["first"], model["again"] = self.Gated(), nn.Linear(12, 12), nn.Linear(12, 12)
        model["again"].weight = model["first"].weight
        model["head"] = nn.Linear(12, 30, bias=False)
        model["head"].weight = model["words"].weight
        model.forward = lambda x: model["head"](
            model["again"](model["first"](model["gated"](model["old"](model["words"](x)))))
        )
        return model

    def test_takes_what_trains_and_tells_what_it_left(self):
        model = self.make()
        before = state_of(model)
        report = orthosparse.sparsify(model, 0.3, split={"*.w_in": 2}, generator=torch.Generator().manual_seed(0))
        assert [row.layer for row in report.rows] == ["gated.w_in", "gated.w_out", "first"]
        assert report.got == count_of(0.3, 12 * 40 + 12 * 20 + 12 * 12)
        assert all(row.orthogonality < 1e-5 for row in report.rows)
        assert [(row.outputs, row.inputs) for row in report.rows] == [(40, 12), (12, 20), (12, 12)]
        assert report.left == {"words": "embedding", "old": "frozen"}
        assert "left dense: 1 embedding (words); 1 frozen (old)" in str(report)
        after = state_of(model)
        assert all(torch.equal(before[name], after[name]) for name in ("words.weight", "old.weight", "head.weight"))

    def test_trains_with_its_masks_and_its_ties(self):
        model = self.make()
        orthosparse.sparsify(model, 0.3, generator=torch.Generator().manual_seed(0))
        masks = orthosparse.masks_of(model)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        model(torch.arange(30)).square().mean().backward()
        optimizer.step()
        layers = orthosparse.find_layers(model)
        assert [*layers] == [*masks]
        assert all(bool((layer.weight()[~masks[name]] == 0).all()) for name, layer in layers.items())
        assert torch.equal(model["first"].weight, model["again"].weight)
        assert torch.equal(model["head"].weight, model["words"].weight)

    def test_a_frozen_layer_that_is_named_says_so(self):
        report = orthosparse.sparsify(self.make(), 0.5, include=["old", "first"])
        assert {row.layer: row.note for row in report.rows} == {"old": "frozen: keeps this start", "first": ""}

    def test_with_nothing_to_do_it_says_what_it_saw(self):
        model = self.make().requires_grad_(False)
        with pytest.raises(ValueError, match=r"found none \(left dense: 5 frozen \(words, old, gated.w_in, ...\)\)"):
            orthosparse.sparsify(model, 0.3)


def test_the_minimal_floor_adds_to_the_total_what_orthogonality_needs():
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    report = orthosparse.sparsify(
        model, 0.02, distribution="uniform", floor="minimal", generator=torch.Generator().manual_seed(0)
    )
    assert [row.asked for row in report.rows] == [21, 20]
    assert [row.got for row in report.rows] == [32, 32]
    assert max(row.orthogonality for row in report.rows) < 1e-5


class TestBlocks:
    """``structure="block:64"``."""

    @staticmethod
    def net():
        return nn.Sequential(nn.Linear(128, 192), nn.Tanh(), nn.Linear(192, 96), nn.Tanh(), nn.Linear(96, 10))

    def test_the_report_tells_the_structure_and_who_has_another(self):
        report = orthosparse.sparsify(self.net(), 0.5, structure="block:64", generator=torch.Generator().manual_seed(0))
        assert report.structure == report.to_dict()["structure"] == "block:64"
        assert [row.note.split("; ")[-1] for row in report.rows] == [
            "",
            "block:32: 64 does not divide its sides",
            "entries: 64 does not divide its sides",
        ]
        assert "erk + eoi, block:64, gain 1" in str(report)
        assert report.asked == report.got == 21984

    def test_a_kernel_stays_with_entries_and_says_so(self):
        report = orthosparse.sparsify(nn.Conv2d(64, 64, 3), 0.5, structure="block:64")
        assert report.rows[0].note == "entries: a kernel of 3 x 3"

    def test_asked_and_got_tell_what_whole_blocks_miss(self):
        model = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 128))
        report = orthosparse.sparsify(model, 0.6, structure="block:64", distribution="uniform", floor="partial")
        assert (report.asked, report.got) == (19661, 5 * 4096)

    def test_raise_takes_whole_blocks_from_the_others(self):
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(256, 256))
        with torch.no_grad():
            model[0].weight.mul_(1e-6)
        report = orthosparse.sparsify(model, 0.5, distribution="magnitude", structure="block:32")
        assert [row.got for row in report.rows] == [2 * 1024, 32 * 1024]
        assert report.got == report.asked
        assert max(row.orthogonality for row in report.rows) < 1e-4

    def test_partial_keeps_the_number_of_blocks(self):
        model = nn.Sequential(nn.Linear(128, 128, dtype=torch.float64))
        orthosparse.sparsify(
            model, 0.1, structure="block:32", floor="partial", generator=torch.Generator().manual_seed(0)
        )
        values = torch.linalg.svdvals(model[0].weight)
        assert int(orthosparse.masks_of(model)["0"].sum()) == 2 * 1024
        torch.testing.assert_close(
            values, torch.tensor([1.0] * 64 + [0.0] * 64, dtype=torch.float64), rtol=0, atol=1e-12
        )

    def test_minimal_adds_the_blocks_that_orthogonality_needs(self):
        report = orthosparse.sparsify(nn.Sequential(nn.Linear(128, 128)), 0.1, structure="block:32", floor="minimal")
        assert (report.asked, report.got) == (1638, 4 * 1024)

    @pytest.mark.parametrize("floor", ["raise", "error"])
    def test_a_refusal_names_the_least_density_and_the_largest_block_that_fits(self, floor):
        model = nn.Sequential(nn.Linear(768, 768))
        message = r"density 0\.0833\d+ is the least.*; structure='block:32' fits"
        with pytest.raises(ValueError, match=message):
            orthosparse.sparsify(model, 0.05, structure="block:64", floor=floor)
        with pytest.raises(ValueError, match="structure='block:16' fits"):
            orthosparse.sparsify(model, 0.03, structure="block:64", floor=floor)
        with pytest.raises(ValueError, match="structure='entries' fits"):
            orthosparse.sparsify(model, 0.01, structure="block:64", floor=floor)
        with pytest.raises(ValueError, match=r"partial isometries$"):
            orthosparse.sparsify(model, 0.001, structure="block:64", floor=floor)

    def test_an_unknown_structure_is_refused_and_the_model_unchanged(self):
        model = self.net()
        before = model[0].weight.clone()
        with pytest.raises(ValueError, match=r"structure: expected .*; got 'block:60'"):
            orthosparse.sparsify(model, 0.5, structure="block:60")
        assert torch.equal(model[0].weight, before)
        assert not orthosparse.masks_of(model)

    def test_masks_survive_a_state_dict_and_their_structure_is_read_off_them(self):
        model, other = self.net(), self.net()
        orthosparse.sparsify(model, 0.5, structure="block:64", generator=torch.Generator().manual_seed(0))
        orthosparse.load_sparse(other, model.state_dict())
        masks = orthosparse.masks_of(other)
        assert [structure_of(mask) for mask in masks.values()] == ["block:64", "block:32", "entries"]


@pytest.mark.parametrize("distribution", ["erk", "magnitude"])
def test_an_unknown_alignment_is_refused_whether_or_not_there_is_anything_to_align_to(distribution):
    model = nn.Sequential(nn.Linear(8, 8))
    before = state_of(model)
    with pytest.raises(ValueError, match="align: expected one of live, mask, none; got 'masks'"):
        orthosparse.sparsify(model, 0.5, distribution=distribution, align="masks")
    assert_same(before, model.state_dict())
