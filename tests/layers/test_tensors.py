"""Stacks of experts: every expert's matrices are orthogonal by themselves, however they are stored."""

import pytest
import torch
from torch import nn

import orthosparse
from contracts.seeded import seeded
from layers.transformers_models import built, error
from orthosparse import find_layers, isometry
from orthosparse.layers.find import left_dense

HIDDEN, INNER, EXPERTS = 32, 48, 4
TINY = {"num_hidden_layers": 2, "hidden_size": HIDDEN, "num_attention_heads": 4, "vocab_size": 50}


def mixtral():
    counts = {"num_local_experts": EXPERTS, "intermediate_size": INNER, "num_key_value_heads": 2}
    model = built("MixtralForCausalLM", "MixtralConfig", **TINY, **counts)
    return model, model.model.layers[1].mlp.experts


def qwen2_moe():
    counts = {"num_experts": EXPERTS, "moe_intermediate_size": INNER, "num_experts_per_tok": 2}
    sizes = {"intermediate_size": 40, "shared_expert_intermediate_size": 40, "num_key_value_heads": 2}
    model = built("Qwen2MoeForCausalLM", "Qwen2MoeConfig", **TINY, **counts, **sizes)
    return model, model.model.layers[1].mlp.experts


def gpt_oss():
    counts = {"num_local_experts": EXPERTS, "intermediate_size": INNER, "num_experts_per_tok": 2}
    heads = {"num_key_value_heads": 2, "head_dim": 8}
    model = built("GptOssForCausalLM", "GptOssConfig", **TINY, **counts, **heads)
    return model, model.model.layers[1].mlp.experts


def llama4():
    counts = {"num_local_experts": EXPERTS, "intermediate_size": INNER, "intermediate_size_mlp": INNER}
    heads = {"num_key_value_heads": 2, "head_dim": 8, "interleave_moe_layer_step": 1}
    model = built("Llama4ForCausalLM", "Llama4TextConfig", **TINY, **counts, **heads)
    return model, model.model.layers[1].feed_forward.experts


def jetmoe():
    counts = {"num_local_experts": EXPERTS, "intermediate_size": INNER, "num_key_value_heads": 2, "kv_channels": 8}
    model = built("JetMoeForCausalLM", "JetMoeConfig", **TINY, **counts)
    return model, model.model.layers[1].mlp.output_linear


def chunked(stack):
    return [half for expert in stack for half in expert.chunk(2)]


def transposed(stack):
    return [expert.T for expert in stack]


# How each model's own forward pass reads its tensors: the matrices that it multiplies with.
MODELS = {
    "mixtral": (mixtral, {"gate_up_proj": chunked, "down_proj": list}),
    "qwen2_moe": (qwen2_moe, {"gate_up_proj": chunked, "down_proj": list}),
    "gpt_oss": (
        gpt_oss,
        {"gate_up_proj": lambda w: [e.T[i::2] for e in w for i in (0, 1)], "down_proj": transposed},
    ),
    "llama4": (llama4, {"gate_up_proj": lambda w: chunked(transposed(w)), "down_proj": transposed}),
    "jetmoe": (jetmoe, {"weight": list}),
}


@pytest.mark.torchvision
@pytest.mark.parametrize("name", MODELS)
def test_every_experts_matrices_are_orthogonal_by_themselves(name):
    make, readings = MODELS[name]
    model, experts = make()
    report = orthosparse.sparsify(model, 0.3, generator=seeded())
    layers = {layer.tensor: layer for layer in find_layers(model).values() if layer.module is experts}
    assert set(layers) == set(readings)
    rows, masks = {row.layer: row for row in report.rows}, orthosparse.masks_of(model)
    for tensor, read in readings.items():
        layer, weight = layers[tensor], getattr(experts, tensor).detach()
        matrices = read(weight)
        errors = [error(matrix) for matrix in matrices]
        assert max(errors) < 1e-5
        assert sorted(layer.shapes) == sorted(tuple(matrix.shape) for matrix in matrices)
        assert layer.floor == sum(min(matrix.shape) for matrix in matrices)
        row, mask = rows[layer.name], masks[layer.name]
        assert row.orthogonality == pytest.approx(sum(each**2 for each in errors) ** 0.5, abs=1e-6)
        assert isometry.orthogonality_score(model, layers={tensor: layer})[tensor].score < 1e-5
        assert int(mask.sum()) == row.got
        # Entries are shared out over the experts in proportion to their sizes, and used: a kernel's taps were not.
        counts = [int(matrix.sum()) for matrix in read(mask)]
        assert max(counts) - min(counts) <= 1
        assert int(weight.count_nonzero()) > 0.95 * row.got
        assert (row.outputs, row.inputs) == (EXPERTS * sum(layer.parts), EXPERTS * layer.shapes[0][1])
        live = sum(int(matrix.any(1).sum()) for matrix in read(mask))
        assert row.dead_outputs == row.outputs - live


def test_a_stack_takes_the_densities_of_its_experts_as_layers_of_their_own():
    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(8, 24, bias=False) for _ in range(3))
            self.head = nn.Linear(24, 40)

    class Stacked(nn.Module):
        __orthosparse__ = {"experts": "expert out in"}  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.experts, self.head = nn.Parameter(torch.zeros(3, 24, 8)), nn.Linear(24, 40)

    for distribution in ("erk", "er", "uniform"):
        counts = [
            {n: int(m.sum()) for n, m in orthosparse.DISTRIBUTIONS[distribution](model, 0.4).items()}
            for model in (Apart(), Stacked())
        ]
        assert sum(n for name, n in counts[0].items() if name != "head") == pytest.approx(counts[1]["experts"], abs=1)


class Mixture(nn.Module):
    """Experts of one's own, stored in both ways."""

    __orthosparse__ = {"up": "expert in out", "down": "expert out in"}  # noqa: RUF012

    def __init__(self, experts=3):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, 8, 24, generator=seeded(1)))
        self.down = nn.Parameter(torch.randn(experts, 8, 24, generator=seeded(2)))

    def forward(self, x):
        return ((x @ self.up).relu() @ self.down.mT).sum(0)


@pytest.mark.parametrize("scheme", ["ai", "base", "eoi", "sao"])
def test_declared_stacks_are_filled_by_every_scheme(scheme):
    model = nn.ModuleDict({"moe": Mixture()})
    options = {"iterations": 2000} if scheme == "ai" else {}
    report = orthosparse.sparsify(model, 0.25, distribution="uniform", scheme=scheme, generator=seeded(), **options)
    errors = {
        "moe.up": [error(expert.T) for expert in model["moe"].up],
        "moe.down": [error(expert) for expert in model["moe"].down],
    }
    for row in report.rows:
        whole = sum(each**2 for each in errors[row.layer]) ** 0.5
        assert row.orthogonality == pytest.approx(whole, rel=1e-4, abs=1e-6)
    if scheme in ("eoi", "sao"):
        assert max(map(max, errors.values())) < 1e-5
    assert report.got == 288


def test_a_stack_of_one_expert_is_a_stack_and_a_split_cuts_each_expert():
    model = nn.ModuleDict({"moe": Mixture(1)})
    layers = find_layers(model, split={"moe.up": 3})
    assert layers["moe.up"].shapes == [(8, 8)] * 3
    assert layers["moe.down"].shapes == [(8, 24)]
    assert find_layers(nn.ModuleDict({"moe": Mixture(2)}), split={"moe.up": 3})["moe.up"].shapes == [(8, 8)] * 6


def test_floors_count_every_expert():
    model = nn.ModuleDict({"moe": Mixture()})
    assert {name: layer.floor for name, layer in find_layers(model).items()} == {"moe.up": 24, "moe.down": 24}
    with pytest.raises(ValueError, match="expected at least 48 entries"):
        orthosparse.sparsify(model, 40 / 1152)
    assert orthosparse.sparsify(model, 48 / 1152).got == 48


@pytest.mark.parametrize("declared", ["out expert in", "expert out", "expert out in tap", "expert expert out in"])
def test_a_wrong_declaration_of_experts_is_refused(declared):
    model = nn.ModuleDict({"moe": Mixture()})
    model["moe"].__orthosparse__ = {"up": declared}
    with pytest.raises(ValueError, match="or 'expert' before them for a stack of matrices"):
        find_layers(model)


@pytest.mark.parametrize("grow", ["gradient", "random"])
def test_a_rewirer_moves_the_masks_of_experts(grow):
    model = Mixture()
    orthosparse.sparsify(model, 0.3, generator=seeded())
    before = orthosparse.masks_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=2, steps=40, generator=seeded())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(3, 5, 8)).square().sum().backward()
        optimizer.step()
        rewirer.step()
    after = orthosparse.masks_of(model)
    assert {n: int(m.sum()) for n, m in before.items()} == {n: int(m.sum()) for n, m in after.items()}
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(int(getattr(model, name)[~mask].count_nonzero()) == 0 for name, mask in after.items())


@pytest.mark.torchvision
def test_biases_of_experts_are_filled_with_the_others_and_are_no_matrices():
    model, experts = gpt_oss()
    report = orthosparse.sparsify(model, 0.3, bias_std=0.5, generator=seeded())
    assert experts.gate_up_proj_bias.detach().std() == pytest.approx(0.5, rel=0.2)
    assert not any("experts" in name for name in report.left)


def test_experts_of_unknown_layout_stay_dense_and_are_listed():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.up_proj, self.down_proj = nn.Parameter(torch.zeros(3, 8, 24)), nn.Parameter(torch.zeros(3, 24, 8))

    model = nn.ModuleDict({"moe": Experts(), "fc": nn.Linear(2, 2)})
    layers = find_layers(model)
    assert [*layers] == ["fc"]
    assert left_dense(model, layers)["moe.up_proj"] == "in a Experts, which holds experts of unknown layout"
    for is_transposed, shape in ((True, (24, 8)), (False, (8, 24))):
        model["moe"].is_transposed = is_transposed
        assert find_layers(model)["moe.up_proj"].shapes == [shape] * 3


@pytest.mark.torchvision
@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "qwen2_moe"])
def test_a_mixture_trains_and_keeps_its_masks(name):
    model, _ = MODELS[name][0]()
    orthosparse.sparsify(model, 0.3, generator=seeded())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = torch.randint(50, (2, 9), generator=seeded())
    for _ in range(2):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    layers = find_layers(model)
    for layer, mask in orthosparse.masks_of(model).items():
        assert int(layers[layer].weight()[~mask].count_nonzero()) == 0


def test_stacks_of_experts_have_entries_where_other_layers_have_blocks():
    model = nn.ModuleDict({"moe": Mixture(), "fc": nn.Linear(64, 64)})
    report = orthosparse.sparsify(model, 0.4, structure="block:16", generator=seeded())
    assert [row.note for row in report.rows][:2] == ["entries: a stack of experts"] * 2
    assert max(error(expert) for expert in model["moe"].down) < 1e-5
