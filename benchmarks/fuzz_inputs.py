"""Good arguments of every public function, wrong ones for most, and faults of state dicts and files, drawn by seed."""

import pathlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import orthosparse
from orthosparse import givens, init, isometry

Arguments = dict[str, Any]


class Tied(nn.Module):
    """Two layers that hold one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x)))  # type: ignore[no-any-return]


def dense(choose: random.Random) -> nn.Module:
    """Return one of a few small models that take six features."""
    return choose.choice(
        [
            lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
            lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4, bias=False)),
            lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(16, 4)),
            Tied,
        ]
    )()


def sparse(choose: random.Random) -> nn.Module:
    """Return such a model with masks."""
    model = dense(choose)
    orthosparse.sparsify(model, 0.6, scheme="base", generator=seeded(choose))
    return model


def compacted(choose: random.Random) -> nn.Module:
    """Return such a model whose layers hold only their active weights, where they can."""
    model = sparse(choose)
    orthosparse.compact(model)
    return model


def saved(choose: random.Random) -> Arguments:
    """Return a compact file and a model for it."""
    model, path = sparse(choose), pathlib.Path(f"{choose.randrange(2**31)}.safetensors")
    orthosparse.save_compact(model, path)
    return {"path": path, "model": model, "assign": False}


def seeded(choose: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(choose.randrange(2**31))


def batch_of(choose: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 6, generator=seeded(choose)), torch.randint(4, (5,), generator=seeded(choose))


def _sparsify(choose: random.Random) -> Arguments:
    return {
        "model": dense(choose),
        "density": choose.choice([0.3, 0.6, 1.0, {"*": 0.7}]),
        "distribution": choose.choice(["uniform", "er", "erk", "magnitude", "snip", "grasp"]),
        "scheme": choose.choice(["base", "eoi", "scaled"]),
        "batch": batch_of(choose),
        "loss": None,
        "include": None,
        "exclude": (),
        "split": None,
        "structure": "entries",
        "gain": 1.0,
        "bias_std": 0.0,
        "floor": choose.choice(["raise", "partial", "minimal"]),
        "generator": seeded(choose),
        "seed": None,
        "group": None,
        "progress": False,
    }


def _prune(choose: random.Random) -> Arguments:
    model = choose.choice([dense, sparse])(choose)
    given = {"distribution": choose.choice(["magnitude", "snip"]), "batch": batch_of(choose), "rewind": None}
    return {"model": model, "density": choose.choice([0.3, {"*": 0.2}]), **given, "optimizer": None, "seed": 1}


def _attach(choose: random.Random) -> Arguments:
    model = dense(choose)
    layers = orthosparse.find_layers(model).items()
    masks = {name: torch.rand(layer.shape, generator=seeded(choose)) < 0.5 for name, layer in layers}
    return {"model": model, "masks": masks, "layers": None, "optimizer": None, "filled": False}


def _with_masks(choose: random.Random) -> Arguments:
    model = sparse(choose)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    masks = {
        name: torch.rand(mask.shape, generator=seeded(choose)) < 0.5
        for name, mask in orthosparse.masks_of(model).items()
    }
    return {"model": model, "masks": masks, "optimizer": optimizer}


def _rewirer(choose: random.Random) -> Arguments:
    given = _with_masks(choose)
    numbers = {"every": 2, "fraction": 0.3, "steps": 10, "until": 0.75, "grow": choose.choice(["gradient", "random"])}
    return {
        "model": given["model"],
        "optimizer": given["optimizer"],
        **numbers,
        "generator": seeded(choose),
        "group": None,
    }


def _matrix(choose: random.Random) -> Arguments:
    return {
        "weight": torch.randn(6, 4),
        "density": 0.5,
        "gain": 1.0,
        "generator": seeded(choose),
        "start": "permuted",
        "floor": "partial",
    }


def _kernel(choose: random.Random) -> Arguments:
    return {
        "weight": torch.randn(6, 4, 3, 3),
        "groups": 1,
        "gain": 1.0,
        "transposed": False,
        "generator": seeded(choose),
    }


def _sampled(choose: random.Random) -> Arguments:
    return {
        "shape": (6, 4),
        "count": 12,
        "generator": seeded(choose),
        "dtype": torch.float32,
        "threads": 1,
        "backend": "auto",
    }


def _layered(choose: random.Random) -> Arguments:
    return {"model": choose.choice([dense, sparse])(choose), "x": batch_of(choose)[0]}


def _pruned(choose: random.Random) -> Arguments:
    model = nn.Sequential(nn.Linear(6, 4))
    nn.utils.prune.l1_unstructured(model[0], "weight", amount=3)
    return {"model": model}


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[random.Random], Arguments]]] = {
    "sparsify": (orthosparse.sparsify, _sparsify),
    "prune": (orthosparse.prune, _prune),
    "attach": (orthosparse.attach, _attach),
    "find_layers": (
        orthosparse.find_layers,
        lambda c: {"model": dense(c), "include": None, "exclude": (), "split": None, "structure": "entries"},
    ),
    "load_sparse": (
        orthosparse.load_sparse,
        lambda c: {"model": (m := sparse(c)), "state": dict(m.state_dict()), "strict": True, "assign": False},
    ),
    "save_compact": (orthosparse.save_compact, lambda c: {"model": c.choice([sparse, compacted])(c), "path": "model"}),
    "load_compact": (orthosparse.load_compact, saved),
    "masks_of": (orthosparse.masks_of, lambda c: {"model": sparse(c)}),
    "replace_masks": (orthosparse.replace_masks, _with_masks),
    "bake": (orthosparse.bake, lambda c: {"model": sparse(c), "optimizer": None}),
    "compact": (orthosparse.compact, lambda c: {"model": sparse(c), "batch": batch_of(c)[0], "optimizer": None}),
    "expand": (orthosparse.expand, lambda c: {"model": sparse(c), "optimizer": None}),
    "densities_of": (orthosparse.densities_of, lambda c: {"masks": orthosparse.masks_of(sparse(c))}),
    "overlap": (
        orthosparse.overlap,
        lambda c: {"first": (m := orthosparse.masks_of(sparse(c))), "second": {n: ~v for n, v in m.items()}},
    ),
    "import_prune_masks": (orthosparse.import_prune_masks, _pruned),
    "export_prune_masks": (orthosparse.export_prune_masks, lambda c: {"model": sparse(c)}),
    "to_semi_structured": (orthosparse.to_semi_structured, lambda c: {"model": sparse(c)}),
    "Rewirer": (orthosparse.Rewirer, _rewirer),
    "SparseLinear": (
        orthosparse.SparseLinear,
        lambda c: {"in_features": 6, "out_features": 4, "entries": 9, "bias": True, "dtype": None},
    ),
    "BlockLinear": (
        orthosparse.BlockLinear,
        lambda c: {"in_features": 32, "out_features": 32, "blocks": 2, "size": 16, "bias": True},
    ),
    "init.sparse_orthogonal_": (init.sparse_orthogonal_, _matrix),
    "init.sparse_delta_orthogonal_": (
        init.sparse_delta_orthogonal_,
        lambda c: {**_kernel(c), "density": 0.5, "center_density": None, "tap": "center"},
    ),
    "init.delta_orthogonal_": (init.delta_orthogonal_, lambda c: {**_kernel(c), "tap": "random"}),
    "init.conv_orthogonal_": (init.conv_orthogonal_, _kernel),
    "init.orthogonal_": (
        init.orthogonal_,
        lambda c: {"weight": torch.randn(6, 4), "gain": 1.0, "generator": seeded(c)},
    ),
    "givens.sample": (
        givens.sample,
        lambda c: {**_sampled(c), "stop": "exact", "angle": None, "start": "identity", "rows": None},
    ),
    "givens.sample_batch": (givens.sample_batch, lambda c: {**_sampled(c), "batch": 2}),
    "givens.sample_csr": (givens.sample_csr, _sampled),
    "givens.sample_blocks": (
        givens.sample_blocks,
        lambda c: {"shape": (8, 8), "count": 3, "block": 4, "generator": seeded(c)},
    ),
    "givens.partial": (
        givens.partial,
        lambda c: {"shape": (6, 4), "count": 2, "start": "permuted", "generator": seeded(c)},
    ),
    "givens.rotate": (givens.rotate, lambda c: {"shape": (6, 4), "rotations": 5, "generator": seeded(c), "threads": 1}),
    "givens.counts_after": (givens.counts_after, lambda c: {"shape": (6, 4), "rotations": 5, "generator": seeded(c)}),
    "givens.expected_density": (givens.expected_density, lambda c: {"size": 6, "rotations": 5}),
    "givens.expected_rotations": (givens.expected_rotations, lambda c: {"rows": 6, "cols": 4, "density": 0.5}),
    "isometry.singular_values": (
        isometry.singular_values,
        lambda c: {
            **_layered(c),
            "k": None,
            "method": "auto",
            "chunk": None,
            "tolerance": 1e-5,
            "generator": seeded(c),
        },
    ),
    "isometry.layer_singular_values": (isometry.layer_singular_values, lambda c: {**_layered(c), "layers": None}),
    "isometry.orthogonality_score": (
        isometry.orthogonality_score,
        lambda c: {"weight_or_model": dense(c), "x": None, "gain": 1.0, "layers": None},
    ),
    "isometry.effective_density": (
        isometry.effective_density,
        lambda c: {**_layered(c), "masks": None, "layers": None, "output": None},
    ),
    "isometry.gradient_flow": (
        isometry.gradient_flow,
        lambda c: {"model": dense(c), "loss": None, "batch": batch_of(c), "step_size": 0.01, "layers": None},
    ),
    "isometry.critical_point": (
        isometry.critical_point,
        lambda c: {"activation": "tanh", "q": 0.5, "depth": None, "variance": 0.1},
    ),
    "isometry.mean_field": (
        isometry.mean_field,
        lambda c: {"activation": "relu", "sigma_w": 1.4, "sigma_b": 0.0, "start": 1.0},
    ),
}


def wrong_value(choose: random.Random) -> Any:
    """Return something that most arguments are not."""
    return choose.choice(
        [
            lambda: None,
            lambda: "x",
            lambda: "",
            lambda: b"x",
            lambda: True,
            lambda: -1,
            lambda: 0,
            lambda: 7,
            lambda: 2**70,
            lambda: 0.5,
            lambda: -0.5,
            lambda: 1.5,
            lambda: float("nan"),
            lambda: float("inf"),
            lambda: 1e39,
            lambda: 1j,
            list,
            dict,
            tuple,
            object,
            lambda: [1, 2],
            lambda: {"x": 1},
            lambda: {"0": None},
            lambda: {3: torch.ones(1)},
            lambda: (0, 4),
            lambda: (6, -4),
            lambda: (6.0, 4),
            lambda: (6,),
            lambda: nn.Linear,
            lambda: nn.Linear(6, 6),
            lambda: nn.Module(),
            lambda: nn.LazyLinear(4),
            lambda: nn.Linear(6, 4, device="meta"),
            lambda: nn.Linear(0, 4),
            lambda: nn.LayerNorm(6),
            lambda: torch.jit.trace(nn.Linear(6, 4), torch.ones(1, 6)),
            lambda: np.ones((6, 4)),
            lambda: np.float64(0.5),
            lambda: torch.ones(()),
            lambda: torch.ones(0),
            lambda: torch.ones(3),
            lambda: torch.ones(6, 4, dtype=torch.int64),
            lambda: torch.ones(6, 4, dtype=torch.complex64),
            lambda: torch.ones(6, 4).to_sparse(),
            lambda: torch.ones(6, 4, device="meta"),
            lambda: torch.ones(6, 4, dtype=torch.bool),
            lambda: torch.full((5, 6), torch.nan),
            lambda: torch.ones(1).expand(6, 4),
            lambda: {"0": torch.ones(2, 2, dtype=torch.bool)},
            lambda: {"0": torch.ones(6, 4)},
            lambda: "adam",
            lambda: torch.optim.SGD,
            lambda: lambda *given: given,
            lambda: pathlib.Path("model.pt"),
            lambda: random.Random(0),
            lambda: torch.float8_e4m3fn,
            lambda: torch.int8,
        ]
    )()


# What a key of a state dict, and its tensor, may have become.
FORGERIES: list[Callable[[str, torch.Tensor], Arguments]] = [
    lambda key, value: {},
    lambda key, value: {f"{key}_": value},
    lambda key, value: {f"module.{key}": value},
    lambda key, value: {3: value},
    lambda key, value: {key: None},
    lambda key, value: {key: value.T if value.dim() == 2 else value[None]},
    lambda key, value: {key: value.double()},
    lambda key, value: {key: value.bool()},
    lambda key, value: {key: value.to(torch.complex64)},
    lambda key, value: {key: value.to(torch.int8)},
    lambda key, value: {key: value.numpy()},
    lambda key, value: {key: value.tolist()},
    lambda key, value: {key: value.to("meta")},
    lambda key, value: {key: value.to_sparse()},
    lambda key, value: {key: value.flatten()[:1]},
    lambda key, value: {key: value.expand(3, *value.shape)},
    lambda key, value: {key: {"data": value}},
    lambda key, value: {key: "x"},
    lambda key, value: {key: value, "extra": object()},
    lambda key, value: {key: value, f"{key}_mask": value},
    lambda key, value: {key: value, f"{key}_mask": torch.ones(2, 2, dtype=torch.bool)},
]


# What a value in the header of a file may have become.
JSON: list[Any] = [None, True, -1, 0, 1, 7, 2**40, 2**70, 0.5, "x", [], [3], [2**40, 2**40], {}, {"0.weight": 3}]


def forged_state(good: Arguments, choose: random.Random) -> Arguments:
    """Return a state dict with one to three faults."""
    state: Arguments = {name: value.clone() for name, value in good.items()}
    for _ in range(choose.choice([1, 1, 2, 3])):
        key = choose.choice([*state, ""])
        value = state.get(key)
        if isinstance(value, torch.Tensor) and not value.is_meta and value.layout is torch.strided:
            del state[key]
            state.update(choose.choice(FORGERIES)(key, value))
    return state


def damage(data: bytearray, choose: random.Random) -> None:
    """Cut a file short, or change a few of its bytes."""
    if choose.random() < 0.3:
        del data[choose.randrange(len(data)) :]
    for _ in range(choose.randrange(1, 4)):
        if data:
            data[choose.randrange(len(data))] = choose.randrange(256)
