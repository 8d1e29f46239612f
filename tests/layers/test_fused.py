"""Fused projections: the parts are those that the models themselves read, and each becomes orthogonal by itself."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import orthosparse
from contracts.seeded import seeded
from layers.transformers_models import built, error
from orthosparse import find_layers
from orthosparse.layers.fused import fused_parts

HIDDEN, HEADS = 64, 8
TINY = {"num_hidden_layers": 2, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "vocab_size": 50}


def neox():
    model = built("GPTNeoXForCausalLM", "GPTNeoXConfig", intermediate_size=128, **TINY)
    weight = model.gpt_neox.layers[1].attention.query_key_value
    return model, weight, lambda w: w.view(HEADS, 3, -1, HIDDEN).unbind(1)  # view(heads, 3 * head_dim).chunk(3)


def bloom():
    sizes = {"n_layer": 2, "hidden_size": HIDDEN, "n_head": HEADS, "vocab_size": 50}
    model = built("BloomForCausalLM", "BloomConfig", **sizes)
    return (
        model,
        model.transformer.h[1].self_attention.query_key_value,
        lambda w: w.view(HEADS, 3, -1, HIDDEN).unbind(1),
    )


def falcon(**kind):
    model = built("FalconForCausalLM", "FalconConfig", **TINY, **kind)
    return model, model.transformer.h[1].self_attention.query_key_value


def falcon_heads():
    return *falcon(new_decoder_architecture=False, multi_query=False), lambda w: w.view(HEADS, 3, -1, HIDDEN).unbind(1)


def falcon_groups():
    # view(-1, heads / kv_heads + 2, head_dim): a group of queries, then its key and its value
    model, linear = falcon(new_decoder_architecture=True, num_kv_heads=2)
    return model, linear, lambda w: w.view(2, HEADS // 2 + 2, -1, HIDDEN).split([HEADS // 2, 1, 1], 1)


def falcon_one_key():
    model, linear = falcon(new_decoder_architecture=False, multi_query=True)
    return model, linear, lambda w: w.split([HIDDEN, HIDDEN // HEADS, HIDDEN // HEADS])


def phi3():
    model = built("Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2, intermediate_size=96, pad_token_id=0, **TINY)
    size = HIDDEN // HEADS
    return model, model.model.layers[1].self_attn.qkv_proj, lambda w: w.split([HIDDEN, 2 * size, 2 * size])


def phi3_gate_up():
    model, _, _ = phi3()
    return model, model.model.layers[0].mlp.gate_up_proj, lambda w: w.chunk(2)


def codegen():
    sizes = {"n_layer": 2, "n_embd": HIDDEN, "n_head": HEADS, "vocab_size": 50, "rotary_dim": 4}
    model = built("CodeGenForCausalLM", "CodeGenConfig", **sizes)
    return model, model.transformer.h[1].attn.qkv_proj, lambda w: w.view(4, 3, -1, HIDDEN).unbind(1)


def bigcode(multi_query):
    sizes = {"n_layer": 2, "n_embd": HIDDEN, "n_head": HEADS, "vocab_size": 50}
    model = built("GPTBigCodeForCausalLM", "GPTBigCodeConfig", multi_query=multi_query, **sizes)
    size, linear = HIDDEN // HEADS, model.transformer.h[1].attn.c_attn
    if multi_query:
        return model, linear, lambda w: w.split([HIDDEN, size, size])
    return model, linear, lambda w: w.view(HEADS, 3, size, HIDDEN).unbind(1)


def gpt2():
    sizes = {"n_layer": 2, "n_embd": HIDDEN, "n_head": HEADS, "vocab_size": 50}
    model = built("GPT2LMHeadModel", "GPT2Config", **sizes)
    return model, model.transformer.h[1].attn.c_attn, lambda w: w.T.chunk(3)  # a Conv1D is stored (in, out)


def llama():
    model = built("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, intermediate_size=96, **TINY)
    return model, model.model.layers[1].self_attn.k_proj, lambda w: [w]


def deepseek(tensor):
    sizes = {"kv_lora_rank": 24, "q_lora_rank": 40, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 12}
    counts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": 96}
    groups = {"n_group": 1, "topk_group": 1, "num_key_value_heads": HEADS}
    model = built("DeepseekV3ForCausalLM", "DeepseekV3Config", **TINY, **sizes, **counts, **groups)
    linear = getattr(model.model.layers[1].self_attn, tensor)
    if tensor == "kv_b_proj":  # view(heads, nope + v), then split
        return model, linear, lambda w: w.view(HEADS, 20, 24).split([8, 12], 1)
    return model, linear, lambda w: w.split([24, 4])


MODELS = {
    "gpt_neox": neox,
    "bloom": bloom,
    "falcon, heads": falcon_heads,
    "falcon, groups": falcon_groups,
    "falcon, one key": falcon_one_key,
    "phi3": phi3,
    "phi3, gate_up": phi3_gate_up,
    "codegen": codegen,
    "gpt_bigcode, heads": lambda: bigcode(False),
    "gpt_bigcode, one key": lambda: bigcode(True),
    "gpt2": gpt2,
    "llama": llama,
    "deepseek, kv_b": lambda: deepseek("kv_b_proj"),
    "deepseek, kv_a": lambda: deepseek("kv_a_proj_with_mqa"),
}


@pytest.mark.torchvision
@pytest.mark.parametrize("name", MODELS)
def test_the_query_key_and_value_that_a_model_reads_are_orthogonal_one_by_one(name):
    model, module, read = MODELS[name]()
    report = orthosparse.sparsify(model, 0.3, generator=torch.Generator().manual_seed(0))
    parts = [part.reshape(-1, part.shape[-1]) for part in read(module.weight.detach())]
    assert [error(part) < 1e-5 for part in parts] == [True] * len(parts)
    layer = next(each for each in find_layers(model).values() if each.module is module)
    row = next(row for row in report.rows if row.layer == layer.name)
    assert row.orthogonality == pytest.approx(sum(error(part) ** 2 for part in parts) ** 0.5, abs=1e-6)
    assert row.note == "" or "fused" not in row.note
    assert sorted(layer.shapes) == sorted(tuple(part.shape) for part in parts)
    assert sum(int(mask.sum()) for mask in orthosparse.masks_of(model).values()) == report.got


@pytest.mark.parametrize("scheme", ["ai", "base", "eoi", "sao"])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_scheme_fills_rows_that_alternate(scheme, transposed):
    class Fused(nn.Module):
        __orthosparse__ = {"w": "in out" if transposed else "out in"}  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(*((8, 24) if transposed else (24, 8)), generator=seeded()))

    model = nn.ModuleDict({"fused": Fused()})
    split = {"fused.w": {"parts": (16, 8), "repeats": 4}}
    options = {"iterations": 2000} if scheme == "ai" else {}
    report = orthosparse.sparsify(model, 0.5, scheme=scheme, split=split, generator=seeded(), **options)
    weight = model["fused"].w.detach()
    pieces = (weight.T if transposed else weight).reshape(4, 6, 8)
    errors = [error(pieces[:, :4].reshape(16, 8)), error(pieces[:, 4:].reshape(8, 8))]
    assert report.rows[0].orthogonality == pytest.approx(sum(each**2 for each in errors) ** 0.5, rel=1e-4, abs=1e-6)
    assert int(orthosparse.masks_of(model)["fused.w"].sum()) == report.got == 96
    if scheme in ("eoi", "sao"):
        assert max(errors) < 1e-5


@pytest.mark.parametrize("layout", ["out in", "in out"])
def test_a_single_part_alternates_with_none(layout):
    class Stored(nn.Module):
        __orthosparse__ = {"w": layout}  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.empty((12, 6) if layout == "out in" else (6, 12)))

    model = nn.ModuleDict({"a": Stored()})
    orthosparse.sparsify(model, 0.6, split={"a.w": {"parts": 1, "repeats": 3}}, generator=seeded())
    assert error(model["a"].w) < 1e-5


def test_a_split_convolution_may_alternate():
    model = nn.Sequential(nn.Conv1d(4, 12, 3, padding=1))
    orthosparse.sparsify(model, 0.6, split={"0": {"parts": 3, "repeats": 2}}, generator=seeded())
    center = model[0].weight.detach()[..., 1].view(2, 3, 2, 4)
    assert all(error(center[:, part].reshape(4, 4)) < 1e-5 for part in range(3))


@pytest.mark.parametrize(
    ("pieces", "wrong", "message"),
    [
        ({"parts": 3}, ValueError, "split: expected parts and repeats for '0'; got parts"),
        ({"parts": 3, "heads": 2}, ValueError, "split: expected parts and repeats"),
        ({"parts": 3, "repeats": 5}, ValueError, r"split: expected repeats that divide each of \(4, 4, 4\)"),
        ({"parts": 3, "repeats": 0}, ValueError, "split: repeats: expected an integer of at least 1; got 0"),
        ({"parts": 3, "repeats": 1.5}, TypeError, "split: repeats: expected an integer"),
        ({"parts": (8, 8), "repeats": 2}, ValueError, "split: expected a divisor or a partition of 12"),
    ],
    ids=str,
)
def test_a_wrong_way_to_alternate_is_refused(pieces, wrong, message):
    with pytest.raises(wrong, match=message):
        find_layers(nn.Sequential(nn.Linear(4, 12)), split={"0": pieces})


def test_groups_and_alternating_rows_do_not_go_together():
    with pytest.raises(ValueError, match="in a layer without groups"):
        find_layers(nn.Sequential(nn.Conv1d(4, 12, 1, groups=2)), split={"0": {"parts": 3, "repeats": 2}})


class Attention(nn.Module):
    def __init__(self, name, out, **attributes):
        super().__init__()
        for key, value in attributes.items():
            setattr(self, key, value)
        setattr(self, name, nn.Linear(16, out))


@pytest.mark.parametrize(
    ("name", "out", "attributes", "expected"),
    [
        ("qkv_proj", 32, {"num_heads": 4, "num_kv_heads": 2}, ((16, 8, 8), 1)),
        ("qkv_proj", 32, {"config": SimpleNamespace(num_attention_heads=4, num_key_value_heads=2)}, ((16, 8, 8), 1)),
        ("qkv", 96, {"num_heads": 4}, ((32, 32, 32), 1)),  # wider than its input
        ("qkv", 32, {"num_heads": 4}, ((16, 16), 1)),  # without queries, as GCViT's
        ("qkv", 64, {"num_heads": 4, "key_dim": 4, "val_dim": 8}, ((16, 16, 32), 4)),  # TinyViT
        ("in_proj_qkv", 40, {"key_dim": 8, "value_dim": 24}, ((8, 8, 24), 1)),
        ("qkv", 48, {"num_heads": 4, "head_first": True}, ((16, 16, 16), 4)),  # MaxViT
        ("gate_up_proj", 40, {}, ((20, 20), 1)),
        ("kv_a_proj_with_mqa", 28, {"kv_lora_rank": 24, "qk_rope_head_dim": 4}, ((24, 4), 1)),  # DeepSeek
        ("kv_b_proj", 80, {"num_heads": 4, "qk_nope_head_dim": 8, "v_head_dim": 12}, ((32, 48), 4)),
        ("kv_b_proj", 80, {}, ((80,), 1)),
        ("query_key_value", 48, {"num_heads": 4}, None),  # of a class that nobody knows: may alternate or not
        ("qkv_proj", 40, {}, None),
        ("qkv_proj", 40, {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}, None),  # that would be 64
        ("fc1", 48, {"num_heads": 4}, ((48,), 1)),
    ],
)
def test_parts_are_read_off_the_module_around_them_or_unknown(name, out, attributes, expected):
    parent = Attention(name, out, **attributes)
    assert fused_parts(name, parent, out, 16) == expected
    layer = find_layers(nn.ModuleDict({"attn": parent}))[f"attn.{name}"]
    assert (layer.parts, layer.repeats) == (expected or ((out,), 1))
    assert bool(layer.note) == (expected is None)


def test_the_report_names_fused_layers_whose_parts_are_unknown():
    model = nn.ModuleDict({"attn": Attention("query_key_value", 48)})
    report = orthosparse.sparsify(model, 0.5, generator=seeded())
    assert report.rows[0].note == "treated as one matrix: its fused parts are unknown, pass split="
    reported = nn.ModuleDict({"attn": Attention("query_key_value", 48)})
    assert orthosparse.sparsify(reported, 0.5, split={"*.query_key_value": 3}).rows[0].note == ""


def test_blocks_of_alternating_rows_lie_in_one_piece_of_their_matrix():
    model = nn.Sequential(nn.Linear(64, 128))
    split = {"0": {"parts": 2, "repeats": 2}}  # pieces of 32 rows
    report = orthosparse.sparsify(model, 0.5, structure="block:64", split=split, generator=seeded())
    pieces = model[0].weight.detach().view(2, 2, 32, 64)
    assert all(error(pieces[:, part].reshape(64, 64)) < 1e-5 for part in range(2))
    blocks = orthosparse.masks_of(model)["0"].view(4, 32, 2, 32).sum((1, 3))
    assert set(blocks.flatten().tolist()) == {0, 32 * 32}
    assert report.rows[0].note == "block:32: 64 does not divide its sides"
