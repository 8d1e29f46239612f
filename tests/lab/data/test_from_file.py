import numpy as np
import pytest
import torch

from orthosparse.lab.data import Loader, load

HEAD = "import numpy as np\nimport torch\ng = torch.Generator().manual_seed(0)\n"
BYTES = (
    "def load():\n"
    "    pixels = torch.randint(256, (46, 2, 3, 5), generator=g, dtype=torch.uint8)\n"
    "    labels = torch.arange(46) % 4\n"
    "    return {'train': (pixels[:40], labels[:40]), 'test': (pixels[40:], labels[40:])}\n"
)


@pytest.fixture
def loaded(tmp_path):
    def loaded(body, **options):
        (tmp_path / "mine.py").write_text(HEAD + body)
        return load(f"{tmp_path}/mine.py:load", tmp_path, **options)

    return loaded


def test_bytes_are_normalised_with_the_moments_of_the_training_images(loaded):
    data = loaded(BYTES)
    assert (len(data.train), len(data.validation), len(data.test)) == (36, 4, 6)
    assert (data.in_shape, data.classes) == ((2, 3, 5), 4)
    everything = loaded(BYTES, validation=False)
    images, _ = next(Loader(everything.train, batch=40).epoch(0))
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.std((0, 2, 3)), torch.ones(2), atol=1e-3, rtol=0)


def test_floats_and_arrays_are_taken_as_they_are(loaded):
    data = loaded(
        "def load(root):\n"
        "    assert root.is_dir()\n"
        "    part = (np.linspace(0, 3, 24).reshape(2, 3, 2, 2), np.array([0, 6]))\n"
        "    return {'train': part, 'test': part, 'validation': part}\n"
    )
    assert data.classes == 7
    for split in (data.train, data.validation, data.test):
        images, labels = next(Loader(split, batch=2, train=False).epoch(0))
        torch.testing.assert_close(images, torch.tensor(np.linspace(0, 3, 24)).view(2, 3, 2, 2).float(), rtol=0, atol=0)
        assert labels.tolist() == [0, 6]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("3", "data: expected .* to return a mapping with train and test; got int"),
        ("{'train': (x, y)}", r"data: expected .* with train and test; got \['train'\]"),
        ("{'train': (x, y), 'test': x}", r"data: expected test to be a pair \(images, labels\); got Tensor"),
        ("{'train': (x[0], y), 'test': (x, y)}", r"data: expected train images of shape .*; got \(1, 2, 2\)"),
        ("{'train': (x.long(), y), 'test': (x, y)}", "data: expected train images of uint8 or .*; got torch.int64"),
        ("{'train': (x, y[1:]), 'test': (x, y)}", r"data: expected 4 whole numbers from 0 as train .*; got .* \(3,\)"),
        ("{'train': (x, y - 1), 'test': (x, y)}", "data: expected 4 whole numbers from 0 as train labels; got -1"),
        ("{'train': (x, y), 'test': (x[..., :1], y)}", "data: expected images of test like those of train"),
    ],
)
def test_what_does_not_fit_together_is_said(loaded, returned, message):
    with pytest.raises((TypeError, ValueError), match=message):
        loaded(f"def load():\n    x, y = torch.ones(4, 1, 2, 2), torch.arange(4)\n    return {returned}\n")


@pytest.mark.parametrize(
    "array", ["x[:, :, ::-1]", "np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape)", "x.astype('>f4')", "x.tolist()"]
)
def test_arrays_of_any_strides_and_byte_order_are_read(loaded, array):
    data = loaded(
        "def load():\n"
        "    x = np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2)\n"
        f"    part = ({array}, np.arange(2))\n"
        "    return {'train': part, 'test': part}\n"
    )
    images = torch.arange(8.0).view(2, 1, 2, 2)
    assert torch.equal(data.train.images, images.flip(2) if "::" in array else images)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_arrays_in_memory_maps_are_not_read_into_memory(loaded, tmp_path, dtype, mode):
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 2, 2), dtype))
    data = loaded(
        "def load(root):\n"
        f"    part = (np.load(root / 'x.npy', mmap_mode='{mode}'), np.arange(2))\n"
        "    return {'train': part, 'test': part}\n"
    )
    np.load(tmp_path / "x.npy", mmap_mode="r+")[:] = 7
    assert (data.train.images == 7).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8"])
def test_labels_may_be_whole_numbers_of_any_kind(loaded, dtype):
    data = loaded(
        "def load():\n"
        f"    part = (torch.zeros(3, 1, 2, 2), np.arange(3, dtype=np.{dtype}))\n"
        "    return {'train': part, 'test': part}\n"
    )
    assert data.train.labels.tolist() == [0, 1, 2]
    assert data.train.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("images", "labels", "part"), [("x", "['a', 'b']", "labels"), ("x.astype(object)", "y", "images")]
)
def test_arrays_that_hold_no_numbers_are_named(loaded, images, labels, part):
    body = f"    x, y = np.zeros((2, 1, 2, 2)), [0, 1]\n    return {{'test': (x, y), 'train': ({images}, {labels})}}\n"
    with pytest.raises(TypeError, match=f"data: expected train {part} to be an array or a tensor of numbers; got "):
        loaded(f"def load():\n{body}")
