import copy
import hashlib
import json
import os
import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Generator, nn

import orthosparse
from contracts.states import assert_same
from orthosparse import load_compact, masking, save_compact
from orthosparse.archives.archive import from_bytes, to_bytes


class Net(nn.Module):
    """A convolution, a batch norm with counts, a masked and a dense layer, and a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
        self.hidden, self.out = nn.Linear(16, 64), nn.Linear(64, 10)
        self.register_buffer("scale", torch.tensor([1.0, -0.0, float("nan")]))

    def forward(self, x):
        return self.out(self.hidden(self.norm(self.conv(x)).mean((2, 3))).relu())


def sparse(density=0.2, seed=0):
    model = Net()
    orthosparse.sparsify(model, density, exclude=["out"], generator=Generator().manual_seed(seed))
    return model


def chain(*widths, density, seed=0, **options):
    model = nn.Sequential(*(nn.Linear(*features) for features in pairwise(widths)))
    orthosparse.sparsify(model, density, generator=Generator().manual_seed(seed), **options)
    return model


def bits(state):
    return {
        key: (value.dtype, value.shape, value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        for key, value in state.items()
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_a_masked_model_comes_back_to_the_last_bit(path):
    model = sparse()
    model(torch.randn(4, 3, 8, 8, generator=Generator().manual_seed(0)))  # moves the statistics
    with torch.no_grad():
        entries = model.hidden.weight_mask.nonzero()[:3].T
        weight = dict(masking.masked_layers(model))["hidden"].original
        weight[tuple(entries)] = torch.tensor([0.0, -0.0, float("nan")])
        weight.view(torch.int32)[tuple(entries[:, 2:])] += 5  # a payload of the not-a-number
    save_compact(model, path)
    other = sparse(seed=1)
    load_compact(path, other)
    assert bits(other.state_dict()) == bits(model.state_dict())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types_are_kept(path, dtype):
    model = sparse().to(dtype)
    save_compact(model, path)
    other = Net().to(dtype)
    load_compact(path, other)
    assert bits(other.state_dict()) == bits(model.state_dict())


def test_a_dense_model_gets_the_masks(path):
    model, other = sparse(), Net()
    save_compact(model, path)
    parameters = {id(parameter) for parameter in other.parameters()}
    load_compact(path, other)
    masks = masking.masks_of(other)
    assert masks.keys() == {"conv", "hidden"}
    assert_same(masks, masking.masks_of(model))
    assert {id(parameter) for parameter in other.parameters()} == parameters


@pytest.mark.parametrize("structure", ["entries", "block:16"])
def test_compact_and_masked_models_give_the_same_file_and_load_each_other(tmp_path, structure):
    def made(seed):
        return chain(64, 64, 32, density=0.3, structure=structure, seed=seed)

    masked, other = made(0), made(1)
    save_compact(masked, tmp_path / "masked")
    small = copy.deepcopy(masked)
    assert orthosparse.compact(small).exchanged == {"0": structure, "1": structure}
    save_compact(small, tmp_path / "compact")
    one, two = (from_bytes((tmp_path / name).read_bytes()) for name in ("masked", "compact"))
    assert bits(one[0]) == bits(two[0])
    assert one[1]["packed"] == two[1]["packed"]
    load_compact(tmp_path / "compact", other)
    assert bits(other.state_dict()) == bits(masked.state_dict())
    orthosparse.replace_masks(small, masking.masks_of(made(1)))
    load_compact(tmp_path / "masked", small)
    orthosparse.expand(small)
    assert bits(small.state_dict()) == bits(masked.state_dict())


class Entries(nn.Module):
    """A layer for inference, as deployed networks have them."""

    def __init__(self, mask, seed):
        super().__init__()
        csr = mask.float().to_sparse_csr()
        self.values = nn.Parameter(torch.randn(1, int(mask.sum()), generator=Generator().manual_seed(seed)))
        self.register_buffer("row_starts", csr.crow_indices().to(torch.int32))
        self.register_buffer("columns", csr.col_indices().to(torch.int32))


def test_tables_of_layers_for_inference_are_coded_and_come_back(path):
    masks = [torch.rand(200, 300, generator=Generator().manual_seed(seed)) < 0.1 for seed in (0, 1)]
    masks[1].view(-1)[:] = masks[0].view(-1).flip(0)  # as many entries
    model, other = nn.Sequential(Entries(masks[0], 0)), nn.Sequential(Entries(masks[1], 1))
    save_compact(model, path)
    assert path.stat().st_size < 4.8 * model[0].values.numel() + 1500
    load_compact(path, other)
    assert bits(other.state_dict()) == bits(model.state_dict())
    fewer = nn.Sequential(Entries(masks[0] & masks[1], 0))
    assert "expected the tables of 0.values as the model has them" in refusal(path, fewer)


def test_a_deployed_network_comes_back(path):
    model = chain(512, 512, 512, 8, density=0.02)
    deployed, _ = orthosparse.deploy(model, torch.zeros(1, 512), threads=1, compile=False)
    save_compact(deployed, path)
    other = copy.deepcopy(deployed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    load_compact(path, other)
    assert bits(other.state_dict()) == bits(deployed.state_dict())
    assert path.stat().st_size < 0.04 * 4 * (2 * 512**2 + 512 * 8) + 3000


def test_tied_tensors_are_stored_once_and_stay_tied(path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)
            self.two.weight = self.one.weight

    model, other = Tied(), Tied()
    orthosparse.sparsify(model, 0.1, generator=Generator().manual_seed(0))
    save_compact(model, path)
    assert path.stat().st_size < 64 * 64 * 4 * 0.3 + 2500
    load_compact(path, other)
    assert bits(other.state_dict()) == bits(model.state_dict())
    assert other.one.parametrizations.weight.original is other.two.parametrizations.weight.original


def test_a_baked_model_is_as_small_and_comes_back_dense(path):
    model = chain(256, 256, 256, density=0.1)
    save_compact(model, path)
    masked = path.stat().st_size
    orthosparse.bake(model)
    save_compact(model, path)
    assert path.stat().st_size < 1.02 * masked
    other = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
    load_compact(path, other)
    assert not masking.masks_of(other)
    assert bits(other.state_dict()) == bits(model.state_dict())


def test_a_bool_buffer_that_only_looks_like_a_mask_is_stored_as_it_is(path):
    class Own(nn.Linear):
        def __init__(self):
            super().__init__(8, 8)
            self.register_buffer("weight_mask", torch.rand(8, 8, generator=Generator().manual_seed(0)) < 0.5)

    model, other = Own(), Own()
    other.weight_mask.fill_(False)
    save_compact(model, path)
    load_compact(path, other)
    assert bits(other.state_dict()) == bits(model.state_dict())


def test_a_model_on_the_meta_device_is_loaded_by_assigning(path):
    model = sparse()
    save_compact(model, path)
    with torch.device("meta"):
        other = Net()
    with pytest.raises(ValueError, match="assign: expected True"):
        load_compact(path, other)
    load_compact(path, other, assign=True)
    assert bits(other.state_dict()) == bits(model.state_dict())


def test_a_default_device_does_not_matter(path):
    model, loaded = sparse(), Net()
    with torch.device("meta"):
        save_compact(model, path)
        load_compact(path, loaded)
    assert bits(loaded.state_dict()) == bits(model.state_dict())


def test_wrappers_are_looked_through(path):
    model = sparse()
    save_compact(torch.compile(model), path)
    other = Net()
    load_compact(path, nn.DataParallel(other))
    assert bits(other.state_dict()) == bits(model.state_dict())


def test_the_same_model_makes_the_same_bytes(tmp_path):
    model = sparse()
    for name in ("one", "two"):
        save_compact(copy.deepcopy(model), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_file_says_what_made_it(path):
    save_compact(sparse(), path)
    assert from_bytes(path.read_bytes())[1]["made_by"]["torch"] == torch.__version__


def test_loading_unpickles_nothing(path, monkeypatch):
    save_compact(sparse(), path)
    monkeypatch.setattr("pickle.Unpickler", None)
    monkeypatch.setattr("torch.load", None)
    load_compact(path, Net())


def refusal(path, model):
    """The message of a load that failed, which names the path and leaves the model as it was; else None."""
    before = bits(model.state_dict())
    try:
        load_compact(path, model)
    except ValueError as error:
        found = str(error)
    else:
        return None
    assert f"path: {path}" in found
    assert bits(model.state_dict()) == before
    return found


@pytest.mark.parametrize("other", [Net, sparse], ids=["dense", "masked"])
def test_a_file_of_another_model_is_refused(path, other):
    save_compact(chain(16, 64, 10, density=0.2), path)
    assert re.search("expected tensors of the model; got '0.", refusal(path, other()))


def test_a_file_with_other_shapes_is_refused(path):
    save_compact(chain(16, 64, density=0.2), path)
    assert re.search(
        r"expected shape \(16,\) for '0.bias'; got \(64,\)", refusal(path, nn.Sequential(nn.Linear(64, 16)))
    )


def test_a_file_that_lacks_a_layer_is_refused(path):
    save_compact(nn.Sequential(nn.Linear(3, 3)), path)
    assert re.search("Missing key", refusal(path, nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))))


def test_another_number_of_active_units_is_refused(path):
    save_compact(chain(64, 64, density=0.2), path)
    small = chain(64, 64, density=0.1)
    orthosparse.compact(small)
    assert re.search("active units", refusal(path, small))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "model"
    save_compact(sparse(), path)
    return path.read_bytes()


FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@FUZZ
@given(st.data())
def test_a_flipped_bit_or_a_cut_is_refused(path, saved, data):
    index = data.draw(st.integers(0, len(saved) - 1))
    changed = bytearray(saved)
    changed[index] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(changed) if data.draw(st.booleans()) else saved[:index])
    assert re.search("expected", refusal(path, Net()))


WRONG = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.lists(st.integers(-2, 2**40), max_size=4), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip


@FUZZ
@given(st.data())
def test_a_forged_description_under_a_right_checksum_is_refused_or_harmless(path, saved, data):
    tensors, description = from_bytes(saved)
    table = data.draw(st.sampled_from(["format", "packed", "rows", "tied", "versions", "entry", "key"]))
    if table == "entry":
        entry = description["packed"][data.draw(st.sampled_from(sorted(description["packed"])))]
        entry[data.draw(st.integers(0, len(entry) - 1))] = data.draw(WRONG)
    elif table == "key":
        description["packed"][data.draw(st.text(max_size=4))] = data.draw(WRONG)
    else:
        description[table] = data.draw(WRONG)
    path.write_bytes(to_bytes(tensors, json.loads(json.dumps(description))))
    model = Net()
    if refusal(path, model) is None:
        assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 10)


@FUZZ
@given(st.data())
def test_forged_tensors_under_a_right_checksum_are_refused_or_loaded_whole(path, saved, data):
    tensors, description = from_bytes(saved)
    key = data.draw(st.sampled_from(sorted(tensors)))
    shape = data.draw(st.lists(st.integers(0, 9), max_size=3))
    dtype = data.draw(st.sampled_from([torch.float32, torch.uint8, torch.int64, torch.bool, torch.complex64]))
    forged = torch.randint(2, shape, generator=Generator().manual_seed(data.draw(st.integers(0, 99)))).to(dtype)
    if data.draw(st.booleans()):
        tensors[key] = forged
    else:
        del tensors[key]
    path.write_bytes(to_bytes(tensors, description))
    model = Net()
    if refusal(path, model) is None:
        assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 10)


def test_a_forged_shape_takes_no_memory(path, saved):
    tensors, description = from_bytes(saved)
    description["packed"]["hidden.weight"][0] = [2**30, 2**30]
    path.write_bytes(to_bytes(tensors, description))
    assert re.search("expected shape", refusal(path, Net()))


def test_a_later_format_is_refused_by_its_number(path, saved):
    tensors, description = from_bytes(saved)
    path.write_bytes(to_bytes(tensors, {**description, "format": 2}))
    assert re.search("expected format 1; got 2", refusal(path, Net()))


def test_complex_buffers_come_back(path):
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    model.register_buffer("phases", torch.tensor([1j, 2.0 - 3j]))
    other.register_buffer("phases", torch.zeros(2, dtype=torch.complex64))
    save_compact(model, path)
    load_compact(path, other)
    assert torch.equal(other.phases, model.phases)


def test_what_cannot_be_stored_is_named(path):
    model = nn.Linear(2, 2)
    model.register_buffer("odd", torch.zeros(2, dtype=torch.complex128))
    with pytest.raises(TypeError, match=r"model: expected numbers of at most 8 bytes; 'odd' has torch\.complex128"):
        save_compact(model, path)
    with pytest.raises(ValueError, match="model: expected tensors that lie in memory; 'weight'"):
        save_compact(nn.Linear(2, 2, device="meta"), path)
    with pytest.raises(ValueError, match="model: expected tensors that lie in memory; 'weight'"):
        save_compact(nn.LazyLinear(2), path)
    model.odd = torch.eye(2).to_sparse()
    with pytest.raises(TypeError, match="model: expected dense tensors in its state dict; 'odd'"):
        save_compact(model, path)
    with pytest.raises(TypeError, match="path: expected the path of a file; got 7"):
        save_compact(nn.Linear(2, 2), 7)
    for wrong in ("", "/", "a\0b"):
        with pytest.raises(ValueError, match="path: expected the path of a file; got"):
            save_compact(nn.Linear(2, 2), wrong)
    with pytest.raises(TypeError, match="model: expected"):
        load_compact(path, None)
    with pytest.raises(TypeError, match="path: expected the path of a file; got a Linear: give the path first"):
        load_compact(nn.Linear(2, 2), path)
    with pytest.raises(FileNotFoundError):
        load_compact(path, nn.Linear(2, 2))
    assert not path.exists()


def test_a_tensor_that_wraps_others_is_named(path):
    class Pair(torch.Tensor):
        """Two tensors that pass for one, as torch's own 2:4 format does."""

        @staticmethod
        def __new__(cls, one):
            return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

        def __init__(self, one):
            self.one = one

        def __tensor_flatten__(self):
            return ["one"], None

        @classmethod
        def __tensor_unflatten__(cls, inner, context, size, stride):
            return cls(inner["one"])

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return args[0] if function is torch.ops.aten.detach.default else NotImplemented

    model = nn.Linear(2, 2)
    model.register_buffer("pair", Pair(torch.zeros(2)))
    with pytest.raises(TypeError, match="model: expected plain tensors in its state dict; 'pair' is a Pair"):
        save_compact(model, path)


KILLED = """
import os, sys
from torch import nn
import orthosparse

def die(*_):
    os.kill(os.getpid(), 9)

os.replace = os.rename = die
import pathlib
pathlib.Path.replace = die
orthosparse.save_compact(nn.Linear(50, 50), sys.argv[1])
"""


def test_a_save_that_is_killed_leaves_the_file_that_was_there(path):
    save_compact(nn.Linear(3, 3), path)
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, os.fspath(path)], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == before


def test_a_lazy_model_takes_its_shapes_from_the_file(path):
    model, other = nn.Sequential(nn.Linear(64, 32)), nn.Sequential(nn.LazyLinear(32))
    orthosparse.bake(model)
    with torch.no_grad():
        model[0].weight[1:] = 0  # packed
    save_compact(model, path)
    load_compact(path, other)
    assert bits(other.state_dict()) == bits(model.state_dict())


@pytest.mark.parametrize(("density", "most"), [(0.1, 0.14), (0.01, 0.02)])
def test_the_file_of_an_mlp_is_as_small_as_promised(path, density, most):
    model = chain(1024, 1024, 1024, 1024, density=density)
    dense = sum(tensor.nbytes for tensor in model.state_dict().values() if tensor.dtype is not torch.bool)
    save_compact(model, path)
    assert path.stat().st_size <= most * dense


def test_places_take_a_few_bits_for_each_active_weight(path):
    model = nn.Linear(512, 512, bias=False)
    masking.attach(model, {"weight": torch.rand(512, 512, generator=Generator().manual_seed(0)) < 0.1})
    save_compact(model, path)
    active = int(model.weight_mask.sum())
    entropy = -active * (np.log2(0.1) + 9 * np.log2(0.9)) / 8
    assert path.stat().st_size < 4 * active + 1.1 * entropy + 1000


TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False]), "c": torch.tensor(7)}
DATA = to_bytes(TENSORS, {"format": 1, "text": 'ä "quoted"'})


def test_tensors_and_description_come_back():
    tensors, description = from_bytes(DATA)
    assert description == {"format": 1, "text": 'ä "quoted"'}
    assert_same(tensors, TENSORS)


def test_equal_contents_make_equal_bytes():
    assert to_bytes(dict(reversed(TENSORS.items())), {"format": 1, "text": 'ä "quoted"'}) == DATA


def test_any_reader_of_safetensors_can_read_it():
    assert torch.equal(safetensors.torch.load(DATA)["a"], TENSORS["a"])


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(index, change):
    changed = bytearray(DATA)
    changed[index] ^= change
    with pytest.raises(ValueError, match="expected"):
        from_bytes(bytes(changed))


@given(st.integers(0, len(DATA) - 1))
def test_a_file_that_was_cut_is_found(length):
    with pytest.raises(ValueError, match="expected"):
        from_bytes(DATA[:length])


def test_bytes_after_the_end_are_found():
    with pytest.raises(ValueError, match="its checksum is another"):
        from_bytes(DATA + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04.",
        safetensors.torch.save(TENSORS),
        safetensors.torch.save(TENSORS, {"orthosparse": "7"}),
        safetensors.torch.save(TENSORS, {"orthosparse": "[" * 100_000}),
        safetensors.torch.save(TENSORS, {"orthosparse": '{"sha256": 7}'}),
        safetensors.torch.save(TENSORS, {"orthosparse": '{"sha256": ""}'}),
        b"\xff" * 100,
    ],
)
def test_other_files_are_refused(data):
    with pytest.raises(ValueError, match="expected a file that save_compact wrote"):
        from_bytes(data)


@pytest.mark.parametrize("entry", [{"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}, {"dtype": "F32"}, 7])
def test_a_header_that_safetensors_cannot_read_is_refused_under_a_right_checksum(entry):
    blank = "0" * 64
    header = {"__metadata__": {"orthosparse": json.dumps({"sha256": blank})}, "a": entry}
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(4)
    forged = data.replace(blank.encode(), hashlib.sha256(data).hexdigest().encode(), 1)
    with pytest.raises(ValueError, match="expected a file that save_compact wrote"):
        from_bytes(forged)


def test_the_file_of_an_averaged_model_loads_into_the_model_itself(generator, tmp_path):
    model, other = (nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)) for _ in range(2))
    orthosparse.sparsify(model, 0.3, generator=generator)
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    orthosparse.save_compact(average, tmp_path / "average")
    orthosparse.load_compact(tmp_path / "average", other)
    assert_same(model.state_dict(), other.state_dict())
    again = torch.optim.swa_utils.AveragedModel(other)
    orthosparse.load_compact(tmp_path / "average", again)
    assert int(again.n_averaged) == int(average.n_averaged)


def test_compact_convolutions_give_the_file_of_masked_ones(tmp_path, generator):
    model = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(6, 5, (1, 3), stride=2))
    orthosparse.sparsify(model, 0.4, generator=generator)
    small = copy.deepcopy(model)
    assert len(orthosparse.compact(small).exchanged) == 2
    for each, name in ((model, "masked"), (small, "compact")):
        save_compact(each, tmp_path / name)
    one, two = (from_bytes((tmp_path / name).read_bytes()) for name in ("masked", "compact"))
    assert bits(one[0]) == bits(two[0])
    other = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(6, 5, (1, 3), stride=2))
    load_compact(tmp_path / "compact", other)
    assert bits(other.state_dict()) == bits(model.state_dict())
