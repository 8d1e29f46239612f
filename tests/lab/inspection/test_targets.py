import pytest
import torch
from torch import nn

from orthosparse.lab.inspection import outputs_of, parse_shape, picker, resolve

FILE = """
import torch
from torch import nn

class Pair(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(12, classes)
    def forward(self, x):
        return {"features": x, "logits": self.layer(x)}

def small(classes=3):
    return Pair(classes)

def plain():
    return nn.Linear(12, 4)

def wrong():
    return 3

number = 1
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(FILE)
    return path


def test_built_in_models_have_shapes_of_their_own(generator):
    assert resolve("mlp", generator=generator).in_shape == (1, 28, 28)
    target = resolve("resnet32", classes=7, generator=generator)
    assert target.in_shape == (3, 32, 32)
    assert outputs_of(target) == 7


def test_a_function_in_a_file_is_called_and_draws_from_the_generator_alone(file):
    before = torch.default_generator.get_state()
    one, same, other = (
        resolve(f"{file}:plain", in_shape=(12,), generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(one.model.weight, same.model.weight)
    assert not torch.equal(one.model.weight, other.model.weight)
    assert torch.equal(torch.default_generator.get_state(), before)
    assert outputs_of(one) == 4


def test_a_function_gets_the_arguments_it_takes(file):
    target = resolve(f"{file}:small", in_shape=(12,), classes=9)
    assert target.model.layer.out_features == 9
    assert outputs_of(target, picker("logits")) == 9


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("plain", {"in_shape": (12,), "classes": 3}, "classes: expected none, as plain in .* takes no such argument"),
        ("plain", {}, "input: expected the shape of one input"),
        ("wrong", {"in_shape": (12,)}, "model: expected wrong in .* to return a torch.nn.Module; got int"),
        ("number", {"in_shape": (12,)}, r"model: expected a function of .*\(plain, small, wrong\); got 'number'"),
    ],
)
def test_what_a_file_cannot_give_is_said(file, name, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        resolve(f"{file}:{name}", **options)


def test_a_missing_file_and_an_unknown_name_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model: expected a file at .*none\.py"):
        resolve(f"{tmp_path}/none.py:make")
    with pytest.raises(ValueError, match="model: expected one of cnn1000"):
        resolve("resnet33")


@pytest.mark.torchvision
def test_a_timm_model_has_its_own_input_size():
    pytest.importorskip("timm")
    assert resolve("timm:test_vit", classes=10).in_shape == (3, 160, 160)


def test_an_output_that_is_no_tensor_is_said_to_need_a_name(file):
    with pytest.raises(ValueError, match=r"output: expected logits .* that --output may name; got dict"):
        outputs_of(resolve(f"{file}:small", in_shape=(12,)))


@pytest.mark.parametrize("text", ["", "3x", "axb", "0x3", "3,3"])
def test_a_shape_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="input: expected sides such as 3x224x224"):
        parse_shape(text)


def test_asking_for_the_outputs_leaves_the_mode_alone():
    target = resolve("mlp", in_shape=(1, 4, 4))
    target.model.train()
    outputs_of(target)
    assert target.model.training


def test_a_picker_takes_keys_attributes_and_indices():
    out = nn.Linear(2, 3)
    assert picker(None) is None
    assert picker("a")({"a": 1}) == 1
    assert picker("out_features")(out) == 3
    assert picker("-1")([1, 2]) == 2
    with pytest.raises(ValueError, match="output: 'b' is not in what the model returns, a dict"):
        picker("b")({"a": 1})
