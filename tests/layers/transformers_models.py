"""Models of Hugging Face's transformers, and how far their matrices are from orthogonal ones."""

import pytest
import torch


def error(matrix):
    """||A^T A - I||_F on the smaller side, in float64."""
    a = matrix.detach().double()
    a = a if a.shape[0] >= a.shape[1] else a.T
    return float((a.T @ a - torch.eye(a.shape[1], dtype=torch.float64)).norm())


def built(model, config, **sizes):
    transformers = pytest.importorskip("transformers")
    with torch.random.fork_rng(devices=[]):  # their own initialization draws from the global generator
        return getattr(transformers, model)(getattr(transformers, config)(**sizes))
