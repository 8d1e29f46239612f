"""deploy: a network for inference that computes the same, and a table that says what was measured."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional

import orthosparse
from contracts.states import assert_same, state_of
from deploying.models import NETWORKS, images, network
from orthosparse import compact, deploy, sparsify
from orthosparse.deploying import choosing, networks
from orthosparse.masking import attach


@pytest.fixture(autouse=True)
def briefly(monkeypatch):
    """Time every form in seven single calls instead of seven blocks of calls: no law here is about close times."""
    monkeypatch.setattr(choosing, "_BLOCK", 0.0)
    monkeypatch.setattr(networks, "_BLOCK", 0.0)


@pytest.mark.parametrize("kind", NETWORKS)
def test_outputs_are_those_of_the_model_in_eval_mode_for_any_batch(kind, generator):
    model, x = network(kind, generator), images(generator)
    deployed, table = deploy(model, x, compile=False)
    others = images(generator, batch=3)
    torch.testing.assert_close(deployed(others), model.eval()(others), rtol=1e-9, atol=1e-9)
    assert table.error <= 1e-10
    assert not deployed.training


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_model_stays_as_it_was(kind, generator):
    model, x = network(kind, generator), images(generator)
    before, modules = state_of(model), list(model.modules())
    deploy(model, x, compile=False)
    assert_same(before, model.state_dict())
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.training


def test_a_network_that_changes_its_input_in_place_is_compared_on_the_example_as_it_was_given(generator):
    class Centering(nn.Sequential):
        def forward(self, x):
            return super().forward(x.sub_(3))

    model = Centering(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    x = torch.randn(3, 6, generator=generator)
    _, table = deploy(model, given := x.clone(), compile=False)
    assert torch.equal(given, x)
    assert not table.notes
    assert table.error < 1e-5


@pytest.mark.parametrize("pool", [nn.MaxPool1d(2), nn.AdaptiveAvgPool1d(4), nn.AvgPool1d(2)])
def test_a_pool_over_the_features_of_a_linear_layer_mixes_dead_units_with_others(pool, generator):
    model = nn.Sequential(nn.Linear(6, 8, bias=False), pool, nn.Linear(4, 3))
    with torch.no_grad():
        model[0].weight[::2] = 0
    x = torch.randn(5, 6, generator=generator)
    deployed, table = deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x), model(x))
    assert not table.notes


@pytest.mark.parametrize("hooked", [0, 1, 2])
def test_a_hook_gets_all_units_of_its_layer(hooked, generator):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        model[0].weight[::2] = 0
    model[hooked].register_forward_hook(lambda module, args, output: output + torch.arange(8.0))
    x = torch.randn(5, 6, generator=generator)
    deployed, table = deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x), model(x))
    assert not table.notes


def with_own_forward(layer):
    layer.forward = lambda x: functional.linear(x, torch.eye(8)) * 3


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (with_own_forward, "the layer has a forward of its own"),
        (nn.utils.spectral_norm, "the layer also holds 'weight_orig'"),
        (lambda layer: layer.register_buffer("scale", torch.ones(())), "the layer also holds 'scale'"),
    ],
    ids=["forward", "spectral norm", "buffer"],
)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.spectral_norm` is deprecated")
def test_a_layer_that_is_more_than_its_weight_and_bias_stays(change, note, generator):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        for layer in model:
            layer.weight[::2] = 0
    change(model[1])
    x = torch.randn(5, 8, generator=generator)
    deployed, table = deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x), model(x))
    assert [row.note for row in table.rows if row.layer == "1"] == [note]
    assert not table.notes


def test_a_model_that_reads_what_only_its_own_layers_have_keeps_them(generator):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(1024, 1024)
            self.fc.scale = 3.0

        def forward(self, x):
            return x if x.sum() > 1e9 else self.fc(x) * self.fc.scale  # a branch, so that torch.fx cannot trace it

    model = Scaled()
    sparsify(model, 0.01, distribution="uniform", generator=generator)
    x = torch.randn(1, 1024, generator=generator)
    deployed, table = deploy(model, x, threads=1, compile=False)
    assert torch.equal(deployed(x), model(x))
    assert "deployed: refused, AttributeError: 'EntriesLinear' object has no attribute 'scale'" in table.notes


def test_masks_of_torch_are_to_be_imported_first():
    model = nn.Sequential(nn.Linear(8, 8))
    nn.utils.prune.random_unstructured(model[0], "weight", 0.9)
    with pytest.raises(ValueError, match=r"model: '0' has a mask of torch\.nn\.utils\.prune; import_prune_masks"):
        deploy(model, torch.ones(1, 8), compile=False)
    orthosparse.import_prune_masks(model)
    deploy(model, torch.ones(1, 8), compile=False)


def test_a_layer_whose_weight_the_model_reads_keeps_its_units(generator):
    class Tied(nn.Sequential):
        def forward(self, x):
            y = self[1](self[0](x).relu())
            return self[2](functional.linear(y.relu(), self[1].weight.t()))

    model = Tied(nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 3))
    with torch.no_grad():
        model[0].weight[::2], model[0].bias[::2] = 0, -1
    x = torch.randn(5, 6, generator=generator)
    deployed, table = deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x), model(x))
    assert not table.notes


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_layers_without_units_stay(generator):
    model = nn.Sequential(nn.Linear(6, 0), nn.ReLU(), nn.Linear(0, 3))
    x = torch.randn(5, 6, generator=generator)
    deployed, table = deploy(model, x, compile=False)
    assert torch.equal(deployed(x), model(x))
    assert not table.notes


@pytest.mark.parametrize("state", ["masked", "compact", "baked"])
def test_masked_compact_and_baked_models_deploy_alike(state, generator):
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 8))
    sparsify(model, 0.1, generator=generator)
    x = torch.randn(3, 64, generator=generator)
    expected = model(x).detach()
    if state == "compact":
        compact(model)
    elif state == "baked":
        orthosparse.bake(model)
    deployed, table = deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x), expected)
    assert [row.layer for row in table.rows] == ["0", "2"]
    assert not orthosparse.masks_of(deployed) or table.chosen == "deployed"


def test_entries_that_are_faster_are_taken_and_verified(generator):
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
    sparsify(model, 0.01, distribution="uniform", generator=generator)
    _, table = deploy(model, torch.randn(16, 1024, generator=generator), threads=1, compile=False)
    assert [row.form for row in table.rows] == ["entries", "entries"]
    assert table.chosen == "deployed"
    assert table.bytes["deployed"] < 0.3 * table.bytes["given"]
    assert all(row.ratio == pytest.approx(row.times["dense"] / row.times["entries"]) for row in table.rows)
    assert table.live == int(sum(layer.weight.count_nonzero() for layer in (model[0], model[2])))


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_default_device_does_not_matter(kind, generator):
    model, x = network(kind, generator), images(generator)
    with torch.device("meta"):
        deployed, _ = deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x), model.eval()(x), rtol=1e-9, atol=1e-9)


def test_a_network_of_dense_weights_is_returned_dense(generator):
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    _, table = deploy(model, torch.randn(2, 32, generator=generator), compile=False)
    assert {row.form for row in table.rows} == {"dense"}
    assert all("density 1.00" in row.note for row in table.rows)


def test_the_fastest_network_is_the_one_returned(generator):
    _, table = deploy(network("residual", generator), images(generator), compile=False)
    assert table.latency[table.chosen] == min(table.latency.values())
    assert {"eager", "channels-last", "shrunk dense", "deployed"} == set(table.latency)


def test_what_cannot_be_traced_keeps_its_units_and_says_so(generator):
    _, table = deploy(network("branching", generator), images(generator), compile=False)
    assert "shrunk dense" not in table.latency
    assert not table.removed
    assert "cannot be traced by torch.fx" in table.notes[0]
    assert [row.layer for row in table.rows] == ["fc1", "fc2", "spare"]
    assert table.rows[2].note == "not reached by the example"


def test_a_tolerance_that_rounding_exceeds_refuses_the_form(generator):
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    sparsify(model, 0.05, generator=generator)
    x = torch.randn(64, 256, generator=generator)
    deployed, table = deploy(model, x, tolerance=0, compile=False)
    assert torch.equal(deployed(x), model(x))
    refused = [row for row in table.rows if row.form == "dense" and "outputs differ" in row.note]
    assert refused or table.error == 0


def test_keyword_arguments_and_defaults_choose_the_branch():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x, scale=None, *, shift=0.0):
            y = self.fc(x) if scale is None else self.fc(x) * scale
            return {"out": y + shift, "in": x}

    model, x = Scaled(), torch.ones(2, 6)
    plain, _ = deploy(model, {"x": x}, compile=False)
    torch.testing.assert_close(plain(x=x)["out"], model(x)["out"])
    scaled, _ = deploy(model, (x, torch.tensor(2.0)), compile=False)
    torch.testing.assert_close(scaled(x, torch.tensor(3.0))["out"], model(x, torch.tensor(3.0))["out"])


def test_a_deployed_network_is_copied_loaded_and_exported(generator):
    model, x = network("residual", generator, dtype=torch.float32), images(generator, dtype=torch.float32)
    deployed, _ = deploy(model, x, compile=False)
    with torch.inference_mode():
        expected = deployed(x)
        torch.testing.assert_close(copy.deepcopy(deployed)(x), expected)
        deployed.load_state_dict(deployed.state_dict())
        torch.testing.assert_close(torch.export.export(deployed, (x,)).module()(x), expected)


def test_a_compiled_network_is_a_plain_module_too(generator):
    model, x = network("plain", generator, dtype=torch.float32), images(generator, dtype=torch.float32)
    deployed, table = deploy(model, x)
    assert {"compiled", "deployed compiled"} <= set(table.latency)
    torch.testing.assert_close(deployed(x), model.eval()(x), rtol=1e-3, atol=1e-4)
    assert not any("_orig_mod" in key for key in deployed.state_dict())
    torch.testing.assert_close(copy.deepcopy(deployed)(x), deployed(x))


def test_progress_counts_layers_and_networks(generator):
    seen = []
    deploy(network("plain", generator), images(generator), compile=False, progress=lambda *each: seen.append(each))
    layers = [each for each in seen if each[0] == "layers"]
    assert [done for _, done, _ in layers] == list(range(1, layers[0][2] + 1))
    assert seen[-1] == ("network", 4, 4)


def test_threads_are_put_back():
    before = torch.get_num_threads()
    deploy(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), threads=before + 1, compile=False)
    assert torch.get_num_threads() == before


def test_tables_print_and_are_plain_values(generator):
    _, table = deploy(network("plain", generator), images(generator), compile=False)
    assert json.loads(json.dumps(table.to_dict()))["chosen"] == table.chosen
    assert table.chosen in str(table)
    assert table._repr_html_().startswith("<table>")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": nn.Linear}, TypeError, "model: expected a torch.nn.Module"),
        ({"model": nn.Sequential(nn.LazyLinear(3))}, ValueError, "lazy"),
        ({"model": nn.Sequential(nn.Linear(4, 4, device="meta"))}, ValueError, "meta device"),
        ({"example": "x"}, TypeError, "example: expected a tensor"),
        ({"example": torch.ones(1, 3)}, ValueError, "example: the model cannot take it"),
        ({"threads": 0}, ValueError, "threads: expected an integer of at least 1"),
        ({"tolerance": -1.0}, ValueError, "tolerance: expected a finite number of at least 0"),
        ({"tolerance": float("nan")}, ValueError, "tolerance"),
        ({"compile": 1}, TypeError, "compile: expected True or False"),
        ({"device": "abacus"}, ValueError, "device: expected"),
    ],
)
def test_wrong_arguments_are_named(changes, error, message):
    given = {"model": nn.Sequential(nn.Linear(4, 4)), "example": torch.ones(1, 4)} | changes
    with pytest.raises(error, match=message):
        deploy(given.pop("model"), given.pop("example"), **given)


def test_attention_that_reads_its_weights_itself_stays(generator):
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    attach(model, {"linear1": torch.rand(32, 16, generator=generator) < 0.2})
    x = torch.randn(2, 3, 16, generator=generator)
    deployed, _ = deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x), model.eval()(x), rtol=1e-3, atol=1e-4)


def test_progress_on_stderr_is_asked_for_and_anything_else_is_named(capsys):
    deploy(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), compile=False)
    assert capsys.readouterr().err == ""
    deploy(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), compile=False, progress=True)
    assert "network 4/4 (100%)" in capsys.readouterr().err
    with pytest.raises(TypeError, match="progress: expected True, False or a function"):
        deploy(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), compile=False, progress="bar")


def test_layers_may_be_called_by_keyword(generator):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.drop = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Dropout()
            self.fc, self.last = nn.Linear(32, 256), nn.Linear(256, 256)

        def forward(self, x):
            x = torch.relu(input=self.norm(input=self.conv(input=x)))
            return self.last(input=torch.relu(input=self.drop(input=self.fc(input=x.mean((2, 3))))))

    model = Named()
    orthosparse.sparsify(model, 0.05, generator=generator)
    x = torch.randn(4, 3, 8, 8, generator=generator)
    deployed, table = orthosparse.deploy(model, x, threads=1, compile=False)
    assert {row.layer for row in table.rows} == {"conv", "fc", "last"}
    assert table.notes == ()
    with torch.inference_mode():
        torch.testing.assert_close(deployed(x), model.eval()(x), rtol=1e-4, atol=1e-5)
