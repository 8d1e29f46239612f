import pytest
import torch
from torch.nn import functional

from orthosparse.lab.training.evaluate import evaluate


def test_figures_are_those_of_the_whole_split_at_once(assembled):
    state = assembled()
    images, labels = (torch.cat(parts) for parts in zip(*state.validation.epoch(0), strict=True))
    (measured,) = evaluate(state, state.validation)
    logits = state.networks.network(images).detach()
    assert measured["loss"] == pytest.approx(functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert measured["accuracy"] == (logits.argmax(1) == labels).double().mean().item()


def test_the_network_is_evaluated_in_eval_mode_and_left_as_it_was(assembled):
    state, modes = assembled(), set()
    state.networks.network.register_forward_hook(
        lambda network, *_: modes.add((network.training, torch.is_grad_enabled()))
    )
    state.networks.model.train()
    evaluate(state, state.validation)
    assert modes == {(False, False)}
    assert state.networks.network.training
