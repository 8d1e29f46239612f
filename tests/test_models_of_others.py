"""Models that people use, as they come from timm and Hugging Face (from their configuration, nothing is fetched)."""

import pytest
import torch

import orthosparse
from orthosparse.counts import count_of

pytestmark = pytest.mark.torchvision


def from_timm(name):
    timm = pytest.importorskip("timm")
    return timm.create_model(name)


def gpt2(**config):
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**config))


@pytest.mark.parametrize("name", ["efficientnet_b0", "resnet50", "deit3_small_patch16_224", "convnext_tiny", "gpt2"])
def test_the_global_count_is_exact_and_dense_layers_are_orthogonal(name):
    with torch.random.fork_rng(devices=[]):  # their own initialisation draws from the global generator
        model = gpt2() if name == "gpt2" else from_timm(name)
    report = orthosparse.sparsify(model, 0.1, distribution="erk", generator=torch.Generator().manual_seed(0))
    layers = orthosparse.find_layers(model)
    numel = sum(layer.numel for layer in layers.values())
    active = sum(int(mask.sum()) for mask in orthosparse.masks_of(model).values())
    assert active == report.got == count_of(0.1, numel)
    # float32, scores over thousands of rows: far from the 1e-1 of anything that is not orthogonal.
    dense = [row for row in report.rows if layers[row.layer].groups == 1]
    whole = {row.layer: row.orthogonality for row in dense if row.rank is None or row.rank[0] == row.rank[1]}
    assert {layer: score for layer, score in whole.items() if score > 1e-4} == {}
    # A shortcut of one tap lacks as many directions as its stride has it drop, and is orthogonal on the others.
    short = [row for row in dense if row.layer not in whole]
    assert [row.layer.split(".", 2)[2] for row in short] == ["downsample.0"] * (3 if name == "resnet50" else 0)
    assert all(row.orthogonality == pytest.approx((row.rank[1] - row.rank[0]) ** 0.5) for row in short)


def test_an_output_layer_that_is_tied_to_the_embedding_survives_tie_weights():
    with torch.random.fork_rng(devices=[]):
        model = gpt2(n_embd=16, n_layer=1, n_head=2, vocab_size=40, bos_token_id=0, eos_token_id=0)
    orthosparse.sparsify(model, 0.3, include=["lm_head"], generator=torch.Generator().manual_seed(0))
    before = model.lm_head.weight.detach().clone()
    model.tie_weights()
    assert torch.equal(model.lm_head.weight, before)
    assert torch.equal(model.transformer.wte.weight, before)
    assert model.lm_head.weight_mask is model.transformer.wte.weight_mask
