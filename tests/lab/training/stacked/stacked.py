"""Stacked residual networks for the tests, and the results of their forward and backward passes."""

import torch

from orthosparse.lab.models.resnet import resnet
from orthosparse.lab.training.stacked.assembly import channels_last_rows, residual_of

CPU = torch.device("cpu")
CLASSES = 5


def networks_of(shape, generator, *, depth=8, activation="relu", members=2):
    """Return small residual networks of random weights, scales and shifts."""
    made = [resnet(classes=CLASSES, in_shape=shape, activation=activation, depth=depth) for _ in range(members)]
    for parameter in (parameter for network in made for parameter in network.parameters()):
        drawn = torch.randn(parameter.shape, generator=generator)
        fan_in = max(1, parameter[0].numel())
        vector = 1 + 0.3 * drawn
        parameter.data.copy_(vector if parameter.dim() == 1 else drawn * (2 / fan_in) ** 0.5)
    return made


def stacked(networks, shape, fused=None, *, keep=torch.float32, compute=torch.float32, device=CPU, masked=False):
    """Return the networks as one, with slabs filled from them, some weights off if `masked`."""
    network, slabs = residual_of(networks[0], shape, len(networks), (keep, compute), device, fused)
    for place, single in enumerate(networks):
        state = single.state_dict()
        if masked:
            weights = {name: value for name, value in state.items() if name.endswith("weight") and value.dim() > 1}
            state |= {f"{name}_mask": (value * 1e4).long() % 3 > 0 for name, value in weights.items()}
        for slab in slabs:
            slab.fill(place, state)
    return network, slabs


def rows_of(network, images):
    """Return images as rows, in the dtype of products."""
    return channels_last_rows(images).to(network.maps.dtype)


def passed(network, slabs, images, weights):
    """Return the results of a step: logits, gradients, norms, running statistics, and logits in evaluation mode."""
    with torch.no_grad():
        rows = rows_of(network, images)
        logits, saved = network.forward(rows)
        network.backward(weights.to(network.maps.dtype), saved)
        assert not saved
        for slab in slabs:
            slab.update_statistics(torch.ones(len(images), dtype=torch.bool, device=images.device))
        found = {"logits": logits, "tested": network.infer(rows)}
    for place, slab in enumerate(slabs):
        for name, leaf in slab.named.items():
            found |= {f"{place} {name}": leaf.gradient.clone(), f"{place} {name} norms": leaf.norms.clone()}
        found |= {f"{place} {name}": tensor.clone() for name, tensor in slab.buffers.items()}
    return found


def check_same(mine, theirs, tolerance):
    """Compare by the norm of the difference, relative to that of the whole."""
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        error = float((mine[name].double() - value.double()).norm() / value.double().norm())
        assert error < tolerance, (name, error)


def given_to(shape, batch, generator, *, members=2, device=CPU):
    """Return images, and the gradient of the logits."""
    images = torch.randn(members, batch, *shape, generator=generator)
    return images.to(device), torch.randn(members, batch, CLASSES, generator=generator).to(device)


def check_constant(maps, slab, generator, *, rows=70):
    """Check that constant channels become their shifts exactly, and that their gradients lose their means alone."""
    networks, width = slab.scale.value.shape[1:]
    # Of so few bits that their sums are exact, as those of bfloat16 are.
    z = torch.randn(networks, 1, width, generator=generator).bfloat16().float().repeat(1, rows, 1)
    v = torch.randn(z.shape, generator=generator)
    found = maps.normalise(z, maps.scale_shift(slab, 0, maps.sums(z, z), rows), "linear")
    assert torch.equal(found, slab.shift.value[0].unsqueeze(1).expand_as(z))
    back = maps.norm_backward(v, z, maps.norm_grads(slab, 0, maps.sums(v, z), rows))
    scale = slab.scale.value[0] * (slab.batch_var[0] + slab.norms.eps).rsqrt()
    torch.testing.assert_close(back, scale.unsqueeze(1) * (v - v.mean(1, keepdim=True)), rtol=1e-5, atol=1e-3)
