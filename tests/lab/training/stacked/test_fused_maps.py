"""Our GPU kernels for residual networks against torch's: by Triton's interpreter, and compiled where there is a GPU."""

import importlib
from pathlib import Path
from shutil import which
from types import SimpleNamespace

import pytest
import torch

from interpreter import check_interpreted, needs_interpreter, needs_triton
from lab.training.stacked.emulator import emulated, needs_compiler
from lab.training.stacked.hopper import SHARED, Notes
from lab.training.stacked.stacked import check_same, given_to, networks_of, passed, stacked
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.stacked import cuda_launches, fused_maps, map_launches
from orthosparse.lab.training.stacked.fused_maps import FusedMaps, fits
from orthosparse.lab.training.stacked.maps import Maps
from orthosparse.lab.training.stacked.residual import layout_of

IMAGES = (3, 32, 32)
META = torch.device("meta")


@needs_interpreter
def test_by_the_interpreter_the_kernels_compute_what_torch_computes():
    check_interpreted(Path(__file__).with_name("interpreted_maps.py"), 30 if which("g++") else 29)


def launched(dtype, precision, generator, monkeypatch):
    """Return all that is launched for networks of 32 layers, in training and in tests, on batches of 128 images."""
    notes, folder = Notes(), "orthosparse.lab.training.stacked"
    for name, kernels in (("_map_kernels", "map_kernels"), ("_norm_kernels", "norm_kernels")):
        stand_in = notes.instead_of(importlib.import_module(f"{folder}.{kernels}"))
        monkeypatch.setattr(map_launches, name, lambda stand_in=stand_in: stand_in)
    monkeypatch.setattr(fused_maps, "chosen", lambda fused, device: True)
    networks = 4 * networks_of(IMAGES, generator, depth=32, members=1)
    with arithmetic(precision):
        network, slabs = stacked(networks, IMAGES, compute=dtype, device=META)
        passed(network, slabs, *given_to(IMAGES, 128, generator, members=4, device=META))
    return notes.launches


# What comes before and after the loop of a kernel: it needs no room beside the loop's.
AROUND = ("BACKWARD", "SHORTCUT", "SUMS", "NORMALISE_SHORTCUT", "STORE")


def one_of_each_loop(launches):
    """Return, of launches that differ in what is around a loop, the one with the most."""
    most = {}
    for launch in sorted(launches, key=lambda launch: sum(launch.constants.get(name, False) for name in AROUND)):
        loop = {name: value for name, value in launch.constants.items() if name not in (*AROUND, "KIND")}
        most[launch.name, str(loop)] = launch
    return list(most.values())


def held(launch):
    """Return how many numbers the pipeline of a product holds, at most."""
    sizes = launch.constants
    patch = sizes["PATCH_HEIGHT"] * sizes["PATCH_WIDTH"] * sizes["OUTPUTS"]
    return sizes["STAGES"] * sizes["BLOCK_WINDOW"] * (sizes["BLOCK_PATCHES"] + patch)


@needs_triton
def test_all_that_is_launched_compiles_fits_into_a_multiprocessor_and_reads_in_pieces(generator, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    every = launched(torch.bfloat16, "bf16", generator, monkeypatch)
    assert {launch.name for launch in every} == {
        "convolve",
        "weight_grad",
        "scale_shift",
        "norm_grads",
        "normalise",
        "activation_backward",
        "norm_backward",
    }
    for launch in one_of_each_loop(every):
        made = launch.compiled()
        assert made.metadata.shared <= SHARED, launch
        # Several numbers at once: one by one, as where Triton does not see that they lie side by side, is far slower.
        assert "ld.global.b16" not in made.asm["ptx"], launch


@needs_triton
def test_in_float32_what_needs_most_room_fits_too(generator, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    every = launched(torch.float32, "tf32", generator, monkeypatch)
    products = one_of_each_loop(launch for launch in every if launch.name in ("convolve", "weight_grad"))
    largest = [launch for launch in products if 4 * held(launch) > SHARED // 2]
    assert {launch.name for launch in largest} == {"convolve", "weight_grad"}
    assert all(launch.compiled().metadata.shared <= SHARED for launch in largest)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"), [("tf32", torch.float32, 2e-2), ("bf16", torch.bfloat16, 0.15)]
)
@pytest.mark.parametrize("batch", [24, 5])
def test_on_a_gpu_the_compiled_kernels_compute_what_torch_computes(precision, dtype, tolerance, batch, generator):
    # Gradients of relu jump where rounding moves a sample over its corner.
    networks = networks_of(IMAGES, generator, depth=14, members=3, activation="tanh")
    device = torch.device("cuda")
    images, weights = given_to(IMAGES, batch, generator, members=3, device=device)
    found = {}
    with arithmetic(precision):
        for fused in (True, False):
            network, slabs = stacked(networks, IMAGES, fused, compute=dtype, device=device, masked=True)
            assert type(network.maps) is (FusedMaps if fused else Maps)
            found[fused] = passed(network, slabs, images, weights)
    check_same(found[True], found[False], tolerance)


@pytest.mark.gpu
def test_on_a_gpu_the_logits_of_a_member_do_not_depend_on_the_others(generator):
    networks, device = networks_of(IMAGES, generator, members=3), torch.device("cuda")
    images, weights = given_to(IMAGES, 24, generator, members=3, device=device)
    whole, alone = (
        passed(*stacked(chosen, IMAGES, True, compute=torch.bfloat16, device=device), *given)
        for chosen, given in ((networks, (images, weights)), (networks[1:], (images[1:], weights[1:])))
    )
    assert torch.equal(whole["logits"][1:], alone["logits"])
    assert torch.equal(whole["0 scale"][:, 1:], alone["0 scale"])


@needs_compiler
@pytest.mark.parametrize(("room", "channels"), [(232_448, {16, 32, 64}), (166_912, {16, 32}), (101_376, {32})])
def test_kernels_in_cuda_are_taken_where_a_block_has_room(room, channels, generator, monkeypatch):
    # An H200, an A100, and a GPU for games; the emulator takes the number of a device for its room.
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=100))
    monkeypatch.setattr(cuda_launches, "library", lambda device, activation: emulated(activation))
    stages = [stage for stage, _ in layout_of(networks_of(IMAGES, generator)[0], IMAGES).stages]
    found = fused_maps._cuda_kernels(stages, "relu", SimpleNamespace(index=room))
    assert found.keys() == channels
    monkeypatch.setattr(cuda_launches, "library", lambda device, activation: None)
    assert fused_maps._cuda_kernels(stages, "relu", SimpleNamespace(index=room)) == {}


def test_networks_that_do_not_fit_are_left_to_torch(generator, monkeypatch):
    networks = networks_of(IMAGES, generator)
    stages = [stage for stage, _ in layout_of(networks[0], IMAGES).stages]
    assert fits(stages, torch.float32)
    assert fits(stages, torch.bfloat16)
    assert not fits(stages, torch.float64)
    many = (5, 8, 8)
    others = layout_of(networks_of(many, generator)[0], many).stages
    assert not fits([stage for stage, _ in others], torch.float32)
    monkeypatch.setattr(fused_maps, "chosen", lambda fused, device: True)
    assert type(stacked(networks, IMAGES)[0].maps) is FusedMaps
    assert type(stacked(networks, IMAGES, compute=torch.float64)[0].maps) is Maps
    assert type(stacked(networks_of(many, generator), many)[0].maps) is Maps
