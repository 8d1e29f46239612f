"""A device without float64 and decompositions, as Apple's GPUs are, computed on the CPU; and what must work on it.

A registered device changes torch for the rest of the process, so `test_hardware.py` runs this file in its own, and
nothing is registered when the file is only imported.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

import orthosparse
from orthosparse import isometry

WIDE = (torch.float64, torch.complex128)
DECOMPOSITIONS = ("aten::linalg_qr", "aten::_linalg_eigh", "aten::_linalg_svd")
IN_PLACE = ("aten::copy_", "aten::set_data")


class _Module(_DummyBackendModule):
    """What torch asks of a device's module when it keeps the state of its generator."""

    def get_rng_state(self, device=None):
        del device
        return torch.zeros(1, dtype=torch.uint8)

    def set_rng_state(self, state, device=None):
        pass

    def manual_seed(self, seed):
        pass


class Pocket(torch.Tensor):
    """A tensor on the device; its values lie in `held`, on the CPU."""

    @staticmethod
    def __new__(cls, held):
        if held.dtype in WIDE:
            raise TypeError(f"the device has no {held.dtype}")
        options = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, device="pocket:0", **options)
        made.held = held
        return made

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        del types
        return _computed(function, args, kwargs or {})


class Machine(TorchDispatchMode):
    """Knows the device while the block runs."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        del types
        return _computed(function, args, kwargs or {})


def _computed(function, args, kwargs):
    given = []

    def held(tensor):
        given.append(tensor)
        return tensor.held

    name = function._schema.name
    inner, options = tree_map_only(Pocket, held, (args, kwargs))
    if given and name.startswith(DECOMPOSITIONS):
        raise NotImplementedError(f"the device has no {name}")
    wanted = options.get("device")
    if wanted is not None:
        options["device"] = torch.device("cpu")
    out = function(*inner, **options)
    if "out" in kwargs:
        return kwargs["out"]
    if name.endswith("_") or name in IN_PLACE:
        return args[0]
    stays = bool(given) if wanted is None else torch.device(wanted).type == "pocket"
    return tree_map_only(torch.Tensor, Pocket, out) if stays else out


@pytest.fixture(scope="module", autouse=True)
def registered():
    _setup_privateuseone_for_python_backend("pocket", backend_module=_Module())


@pytest.fixture(autouse=True)
def machine():
    with Machine():
        yield


def perceptron():
    return nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32)), torch.randn(8, 32, generator=seeded(1))


def convolutional():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
    return model, torch.randn(8, 3, 8, 8, generator=seeded(1))


MODELS = [perceptron, convolutional]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def sparse(make, device, **options):
    torch.manual_seed(0)  # of torch's own initialization
    model, x = make()
    model, x = model.to(device), x.to(device)
    batch = x, torch.arange(8).to(device)
    report = orthosparse.sparsify(model, 0.5, generator=seeded(0), batch=batch, **options)
    return model, batch, report


def test_the_device_has_no_float64_and_no_decompositions():
    x = torch.ones(2, 2).to("pocket")
    with pytest.raises(TypeError, match=r"no torch\.float64"):
        x.double()
    with pytest.raises(NotImplementedError, match="linalg_qr"):
        torch.linalg.qr(x)
    assert x.device.type == (x + 1).device.type == "pocket"
    assert x.cpu().double().dtype == torch.float64


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("scheme", ["eoi", "base", "scaled", "ai"])
def test_every_scheme_gives_the_weights_and_the_report_of_the_cpu(make, scheme):
    model, _, report = sparse(make, "pocket", scheme=scheme)
    expected, _, expected_report = sparse(make, "cpu", scheme=scheme)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name].cpu(), tensor, rtol=1e-5, atol=1e-6)
    assert str(report) == str(expected_report)


@pytest.mark.parametrize("distribution", ["magnitude", "snip", "snip_iterative", "grasp", "synflow"])
def test_every_scored_distribution_gives_the_masks_of_the_cpu(distribution):
    def ranked():
        model, x = convolutional()
        return nn.Sequential(model[0], *model[2:]), x  # no batch norm, for synflow

    model, _, _ = sparse(ranked, "pocket", distribution=distribution)
    expected, _, _ = sparse(ranked, "cpu", distribution=distribution)
    for name, mask in orthosparse.masks_of(expected).items():
        assert torch.equal(orthosparse.masks_of(model)[name].cpu(), mask), name


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("options", [{"method": "exact"}, {"method": "matrix_free", "k": 2}])
def test_singular_values_are_those_of_the_cpu(make, options):
    model, (x, _), _ = sparse(make, "pocket")
    expected, (on_cpu, _), _ = sparse(make, "cpu")
    values = isometry.singular_values(model, x, generator=seeded(2), **options).values
    wanted = isometry.singular_values(expected, on_cpu, generator=seeded(2), **options).values
    torch.testing.assert_close(values.cpu(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MODELS)
def test_layers_are_measured_as_on_the_cpu(make):
    model, batch, _ = sparse(make, "pocket", scheme="base")
    expected, on_cpu, _ = sparse(make, "cpu", scheme="base")
    scores, wanted = isometry.orthogonality_score(model), isometry.orthogonality_score(expected)
    assert {name: each.score for name, each in scores.items()} == pytest.approx(
        {name: each.score for name, each in wanted.items()}
    )
    for name, spectrum in isometry.layer_singular_values(model).items():
        torch.testing.assert_close(spectrum.values, isometry.layer_singular_values(expected)[name].values)
    flow = isometry.gradient_flow(model, functional.cross_entropy, batch)
    assert flow.norm == pytest.approx(isometry.gradient_flow(expected, functional.cross_entropy, on_cpu).norm, rel=1e-4)


@pytest.mark.parametrize("grow", ["gradient", "momentum", "random"])
def test_masks_move_and_are_baked(grow):
    model, (x, y), _ = sparse(perceptron, "pocket")
    before = orthosparse.masks_of(model)["0"].cpu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    drawn = {"generator": seeded(3)} if grow == "random" else {}
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=1, steps=9, **drawn)
    for _ in range(3):
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        rewirer.step()
    after = orthosparse.masks_of(model)["0"].cpu()
    assert int(after.sum()) == int(before.sum())
    assert not torch.equal(after, before)
    orthosparse.bake(model)
    assert not model[0].weight.cpu()[~after].any()


def test_blocks_are_compacted():
    model, (x, _), _ = sparse(perceptron, "pocket", structure="block:16")
    expected = model(x).cpu()
    orthosparse.compact(model)
    torch.testing.assert_close(model(x).cpu(), expected, rtol=1e-5, atol=1e-6)


def test_batch_norms_are_folded_for_inference():
    model, (x, _), _ = sparse(convolutional, "pocket")
    expected = model.eval()(x).cpu()
    deployed, _ = orthosparse.deploy(model, x, compile=False)
    torch.testing.assert_close(deployed(x).cpu(), expected, rtol=1e-4, atol=1e-5)
