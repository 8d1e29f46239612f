import pytest
import torch

from orthosparse.lab.inspection.head import Head, picker
from orthosparse.lab.inspection.targets import head_of, parse_input, resolve, shape_text

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


def outputs_of(target, pick=None):
    """The classes of a model that returns [batch, classes]."""
    head, (_, classes) = head_of(target, Head(pick))
    assert head == Head(pick)
    return classes


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
        (
            "plain",
            {"in_shape": (12,), "activation": "relu"},
            "activation: expected none, as .*plain takes no such argument",
        ),
        ("plain", {}, "input: expected the shape of one input"),
        ("wrong", {"in_shape": (12,)}, "model: expected .*:wrong to return a torch.nn.Module; got int"),
        ("number", {"in_shape": (12,)}, r"model: expected a function of .*\(plain, small, wrong\); got 'number'"),
    ],
)
def test_what_a_file_cannot_give_is_said(file, name, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        resolve(f"{file}:{name}", **options)


def test_a_missing_file_and_an_unknown_name_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model: expected a file at .*none\.py"):
        resolve(f"{tmp_path}/none.py:make", in_shape=(1,))
    with pytest.raises(ValueError, match="model: expected one of cnn1000"):
        resolve("resnet33")


@pytest.mark.torchvision
def test_a_timm_model_has_its_own_input_size():
    pytest.importorskip("timm")
    assert resolve("timm:test_vit", classes=10).in_shape == (3, 160, 160)


def test_an_output_that_is_no_tensor_is_said_to_need_a_name(file):
    with pytest.raises(ValueError, match=r"output: expected logits .* that --output may name; got dict"):
        outputs_of(resolve(f"{file}:small", in_shape=(12,)))


@pytest.mark.parametrize("text", ["", "3x", "axb", "0x3", "3,3", "tokens:", "tokens:0"])
def test_a_shape_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="input: expected sides such as 3x224x224, or tokens:128"):
        parse_input(text)


def test_a_shape_reads_as_it_is_written():
    for text in ("3x32x32", "12", "tokens:128", "tokens:2x8"):
        assert shape_text(*parse_input(text)) == text


def test_asking_for_the_outputs_leaves_the_mode_alone():
    target = resolve("mlp", in_shape=(1, 4, 4))
    target.model.train()
    outputs_of(target)
    assert target.model.training


TOKENS = """
import torch
from torch import nn

class Reader(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.mean, self.positions = mean, nn.Embedding(8, 4)
        self.words, self.layer = nn.Embedding(30, 4), nn.Linear(4, 30)
    def forward(self, x):
        h = self.layer(self.words(x) + self.positions(torch.arange(x.shape[1])))
        return h.mean(1) if self.mean else h

def language():
    return Reader(False)

def classifier():
    return Reader(True)

def pictures():
    return nn.Conv2d(3, 6, 1)
"""


@pytest.fixture
def tokens(tmp_path):
    (tmp_path / "readers.py").write_text(TOKENS)
    return lambda name, **options: resolve(f"{tmp_path}/readers.py:{name}", **{"in_shape": (8,), **options})


def test_the_vocabulary_is_that_of_the_embedding_that_reads_the_tokens(tokens):
    target = tokens("language", tokens=True)
    assert (target.embedding, target.vocabulary) == ("words", 30)
    with pytest.raises(ValueError, match="input: expected a model that gives its tokens to an"):
        tokens("pictures", tokens=True, in_shape=(3, 4, 4))
    with pytest.raises(ValueError, match=r"input: expected tokens that the model takes; got \(9,\) of them"):
        tokens("language", tokens=True, in_shape=(9,))


def test_classes_are_the_last_axis_of_a_language_model_and_else_the_second(tokens):
    assert head_of(tokens("language", tokens=True), Head()) == (Head(axis=-1), (1, 8, 30))
    assert head_of(tokens("classifier", tokens=True), Head()) == (Head(), (1, 30))
    assert head_of(tokens("pictures", in_shape=(3, 4, 5)), Head()) == (Head(), (1, 6, 4, 5))


def test_a_model_of_tokens_that_is_shown_numbers_is_answered_with_the_option(tokens):
    with pytest.raises(ValueError, match=r"input: expected one that .*; a model of tokens takes --input tokens:8"):
        head_of(tokens("language"), Head())
    with pytest.raises(ValueError, match="input: expected CHANNELSxHEIGHTxWIDTH for mlp; got tokens:8"):
        resolve("mlp", in_shape=(8,), tokens=True)
