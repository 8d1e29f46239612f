"""Models that people use, as they come from timm and Hugging Face (from their configuration, nothing is fetched)."""

import pytest
import torch

import orthosparse
from orthosparse.counts import count_of


def from_timm(name):
    timm = pytest.importorskip("timm")
    return timm.create_model(name)


def gpt2():
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2LMHeadModel(transformers.GPT2Config())


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
    scores = {row.layer: row.orthogonality for row in report.rows if layers[row.layer].groups == 1}
    assert {layer: score for layer, score in scores.items() if score > 1e-4} == {}
