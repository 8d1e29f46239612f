import math

import pytest
import torch
from torch import nn

from contracts.defaults import other_defaults
from contracts.models import MODELS
from contracts.states import assert_same, state_of
from orthosparse import init, orthogonality, sparsify
from orthosparse.isometry import layer_singular_values, orthogonality_score, singular_values
from orthosparse.layers import find_layers
from orthosparse.masking import attach


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def filled(model):
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    return model


def test_one_weight_is_scored_as_its_room_does():
    weight = randn(6, 4)
    assert orthogonality_score(weight) == orthogonality.orthogonality_score(weight)
    kernel = randn(6, 2, 3, 3)
    assert orthogonality_score(kernel, groups=2, spatial=8) == orthogonality.orthogonality_score(
        kernel, groups=2, spatial=8
    )


def test_every_layer_of_a_sparse_orthogonal_model_scores_zero(generator):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.Linear(4, 5)
    )
    init.sparse_delta_orthogonal_(model[0].weight, density=0.3, generator=generator)
    init.sparse_delta_orthogonal_(model[2].weight, density=0.3, groups=2, generator=generator)
    init.sparse_orthogonal_(model[3].weight, density=0.5, generator=generator)
    scores = orthogonality_score(model)
    assert list(scores) == ["0", "2", "3"]
    assert all(score.score < 1e-6 and not score.note for score in scores.values())
    assert all(float(score) == score.score for score in scores.values())
    doubled = orthogonality_score(nn.Sequential(model[3]), gain=2.0)["0"].score
    assert doubled == pytest.approx(0.75 * math.sqrt(4), rel=1e-5)


def test_several_matrices_in_one_tensor_add_up():
    attention, recurrent = filled(nn.MultiheadAttention(4, 2).double()), filled(nn.LSTM(3, 4).double())
    scores = orthogonality_score(nn.ModuleDict({"a": attention, "r": recurrent}))
    for name, weight in (("a.in_proj_weight", attention.in_proj_weight), ("r.weight_hh_l0", recurrent.weight_hh_l0)):
        parts = [orthogonality.orthogonality_score(part) for part in weight.detach().split(4)]
        assert scores[name].score == pytest.approx(math.hypot(*parts))


def test_a_circular_convolution_has_the_values_of_its_explicit_jacobian():
    """Dilated, grouped and transposed ones too: the score is that of the map, not of the kernel."""
    for make in (
        lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False),
        lambda: nn.Conv2d(2, 4, 3, padding=2, dilation=2, padding_mode="circular", bias=False),
        lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2, padding_mode="circular", bias=False),
    ):
        model = filled(nn.Sequential(make()).double())
        x = randn(1, model[0].in_channels, 6, 6)
        matrix = torch.autograd.functional.jacobian(model, x).reshape(-1, x.numel())
        spectrum = layer_singular_values(model, x)["0"]
        torch.testing.assert_close(spectrum.values[0], torch.linalg.svdvals(matrix), atol=1e-10, rtol=1e-8)
        small = min(matrix.shape)
        gram = matrix.T @ matrix if matrix.shape[1] == small else matrix @ matrix.T
        explicit = torch.linalg.matrix_norm(gram - torch.eye(small)) / 6  # one of 36 positions
        score = orthogonality_score(model, x)["0"]
        assert score.score == pytest.approx(float(explicit), rel=1e-10)
        assert score.spatial == (6, 6)
        assert score.note == ""


@pytest.mark.parametrize(
    ("layer", "note"),
    [
        (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), ""),
        (nn.Conv2d(2, 2, 1), ""),
        (nn.Conv2d(2, 2, 1, stride=2), ""),
        (nn.Conv2d(2, 2, 2, stride=2), ""),
        (nn.Conv2d(2, 2, 3, stride=2, padding=1), "zeros padding: scored as circular"),
        (nn.Conv2d(2, 2, 5, stride=2), "padding 0x0: scored as one that keeps every position of the stride"),
        (nn.Conv2d(2, 2, 1, padding=1), "padding 1x1: scored as one that keeps the signal's size"),
        (nn.Conv2d(2, 2, 3, padding=1), "zeros padding: scored as circular"),
        (nn.Conv2d(2, 2, 3, padding="same", padding_mode="reflect"), "reflect padding: scored as circular"),
        (nn.Conv2d(2, 2, 3), "padding 0x0: scored as one"),
        (nn.Conv1d(2, 2, 4, padding="valid"), "padding valid: scored as one"),
        (nn.Conv2d(2, 2, 5, padding=4, dilation=2), "zeros padding: scored as circular"),
        (nn.ConvTranspose2d(2, 2, 2, stride=2), ""),
        (nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1, output_padding=1), "zeros padding: scored as circular"),
        (nn.ConvTranspose2d(2, 2, 3, stride=2), "padding 0x0: scored as one that keeps every position of the stride"),
        (nn.Linear(2, 2), ""),
    ],
)
def test_the_note_says_what_the_score_leaves_out(layer, note):
    found = orthogonality_score(filled(nn.Sequential(layer)))["0"].note
    assert found.startswith(note.split(".*")[0])
    assert bool(found) == bool(note)
    assert all(part in found for part in note.split(".*"))


STRIDED = [
    nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode="circular", bias=False),
    nn.Conv2d(2, 12, 2, stride=2, bias=False),
    nn.Conv2d(4, 6, (3, 2), stride=(3, 1), padding=(1, 0), groups=2, padding_mode="circular", bias=False),
    nn.Conv2d(2, 3, 3, stride=2, padding=2, dilation=2, padding_mode="circular", bias=False),
    nn.Conv1d(3, 4, 1, stride=2, bias=False),
    nn.Conv1d(3, 4, 5, stride=2, padding=2, padding_mode="circular", bias=False),
    nn.ConvTranspose1d(3, 2, 2, stride=2, bias=False),
    nn.ConvTranspose2d(4, 6, 3, stride=3, groups=2, bias=False),
]


@pytest.mark.parametrize("layer", STRIDED, ids=str)
def test_strided_convolutions_are_measured_as_the_maps_they_are(layer):
    """Against the explicit matrix of the layer on a signal; at sizes where nothing is approximated."""
    model = filled(nn.Sequential(layer).double())
    x = randn(1, layer.in_channels, *[12] * (layer.weight.dim() - 2))
    if layer.kernel_size[-1] == 2 and layer.stride[-1] == 1:
        model.insert(0, nn.CircularPad2d((0, 1, 0, 0)))  # torch cannot pad one side alone
    name = str(len(model) - 1)
    matrix = torch.autograd.functional.jacobian(model, x).reshape(-1, x.numel())
    positions = min(model(x)[0, 0].numel(), x[0, 0].numel())  # of the smaller signal
    layers = {name: find_layers(model)[name]}
    if len(model) == 1:
        values = layer_singular_values(model, x)[name].values[0]
        torch.testing.assert_close(values, torch.linalg.svdvals(matrix), atol=1e-10, rtol=1e-8)
    small = min(matrix.shape)
    gram = matrix.T @ matrix if matrix.shape[1] == small else matrix @ matrix.T
    explicit = torch.linalg.matrix_norm(gram - torch.eye(small)) / math.sqrt(positions)
    assert orthogonality_score(model, layers=layers)[name].score == pytest.approx(float(explicit), rel=1e-10)
    if len(model) == 1:
        assert orthogonality_score(model, x)[name].score == pytest.approx(float(explicit), rel=1e-10)
        assert orthogonality_score(model, x)[name].note == ""


def test_a_signal_that_the_stride_does_not_divide_is_noted():
    model = filled(nn.Sequential(nn.Conv2d(2, 3, 2, stride=2)))
    assert "stride 2x2 does not divide the signal" in orthogonality_score(model, randn(1, 2, 7, 6).float())["0"].note
    assert layer_singular_values(model, randn(1, 2, 7, 6).float())["0"].values.shape == (1, 3)


def test_zero_padding_is_no_approximation_for_a_centred_kernel(generator):
    model = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1).double())
    init.delta_orthogonal_(model[0].weight, generator=generator)
    assert orthogonality_score(model)["0"].note == ""
    values = singular_values(model, randn(1, 3, 5, 5)).values
    torch.testing.assert_close(values, torch.ones_like(values))


def test_masks_are_seen_through_and_layers_can_be_chosen():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    attach(model, {"0": torch.zeros(3, 3, dtype=torch.bool)})
    assert orthogonality_score(model)["0"].score == pytest.approx(math.sqrt(3))
    from orthosparse.layers import find_layers

    assert list(orthogonality_score(model, layers=find_layers(model, include=["1"]))) == ["1"]


def test_signal_sizes_leave_no_trace():
    model = nn.Sequential(nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Conv2d(2, 2, 3))
    before, state = state_of(model), torch.get_rng_state()
    scores = orthogonality_score(model, torch.ones(2, 2, 9, 8))
    assert [score.spatial for score in scores.values()] == [(9, 8), (7, 6)]
    assert_same(before, model.state_dict())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_layers_that_are_called_by_keyword_are_measured_on_their_signal():
    class ByKeyword(nn.Sequential):
        def forward(self, x):
            return self[1](input=self[0](input=x))

    scores = orthogonality_score(ByKeyword(nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 3)), torch.ones(2, 2, 9, 8))
    assert [score.spatial for score in scores.values()] == [(9, 8), (7, 6)]


@pytest.mark.parametrize("measure", [orthogonality_score, layer_singular_values])
def test_weights_that_are_iterated_when_they_are_read_stay_where_they_were(measure, generator):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    sparsify(model, 0.5, generator=generator)
    for layer in (model[0], model[2]):
        nn.utils.parametrizations.spectral_norm(layer)
    before = state_of(model)
    held = [*model.parameters(), *model.buffers()]
    measure(model)
    assert_same(before, model.state_dict())
    assert all(new is old for new, old in zip([*model.parameters(), *model.buffers()], held, strict=True))


def test_a_default_device_and_dtype_do_not_matter():
    model, (x, _) = MODELS["cnn"].make(), MODELS["cnn"].batch()
    scores, spectra = orthogonality_score(model, x), layer_singular_values(model, x)
    with other_defaults():
        assert orthogonality_score(model, x) == scores
        assert all(torch.equal(s.values, spectra[key].values) for key, s in layer_singular_values(model, x).items())


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="groups: for a single weight only"):
        orthogonality_score(nn.Sequential(nn.Linear(2, 2)), groups=2)
    with pytest.raises(TypeError, match="x: expected a floating-point tensor"):
        orthogonality_score(nn.Sequential(nn.Conv2d(2, 2, 1)), torch.ones(1, 2, 3, 3, dtype=torch.int64))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_a_split_convolution_is_measured_block_by_block(kind, groups, generator):
    model = nn.Sequential(kind(8, 24, 3, groups=groups, dilation=2, bias=False))
    sparsify(model, 0.5, split={"0": 3}, depthwise="center", generator=generator)
    layers = find_layers(model, split={"0": 3})
    assert float(orthogonality_score(model, layers=layers)["0"]) < 1e-5
    assert float(orthogonality_score(model)["0"]) > 1  # as one matrix it is no isometry
    values = layer_singular_values(model, torch.zeros(1, 8, 9), layers=layers)["0"].values
    matrices = 3 * [(8, 8)] if groups == 1 else [(8, 4), (4, 4), (4, 4), (8, 4)]  # the middle block is in both groups
    assert values.shape == (1, sum(min(shape) for shape in matrices) * 9)
    torch.testing.assert_close(values, torch.ones_like(values), atol=1e-5, rtol=0)
