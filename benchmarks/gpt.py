"""Train a byte-level GPT dense, thin, and block-sparse from several starts, each for the same time, on real text.

python benchmarks/gpt.py --text FILE [--out rows.jsonl] [--seconds 40] [--starts dense thin base scaled eoi]

Every network is a pre-LN transformer whose products run in bfloat16 and which torch compiles; the sparse ones hold only
their active blocks (`orthosparse.compact`). `thin` is a dense network of the same depth with as many parameters as the
sparse ones. The clock runs while a network trains, not while it compiles or is evaluated, so that a row has the bits a
byte at equal time; those at equal steps are read off the evaluations on the way. A tenth of the text is held out.
"""

import argparse
import copy
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import orthosparse
from orthosparse.lab.provenance import provenance

STARTS = ("dense", "thin", "base", "scaled", "eoi")
BYTES = 256


@dataclass(frozen=True)
class Setting:
    """What is trained: the network, the batch, the optimizer and the clock."""

    width: int = 2048
    layers: int = 8
    head: int = 128
    context: int = 1024
    batch: int = 16
    density: float = 0.1
    structure: str = "block:64"
    lr: float = 3e-4
    warmup: int = 100
    weight_decay: float = 0.1
    seconds: float = 40.0
    evaluate: int = 100  # steps between evaluations
    evaluations: int = 8  # batches of each
    compiled: bool = True


class Block(nn.Module):
    """Attention and a perceptron, each behind a layer norm and beside a shortcut."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.heads = max(1, width // head)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, width: int, setting: Setting) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(BYTES, width), nn.Embedding(setting.context, width)
        self.blocks = nn.ModuleList(Block(width, setting.head) for _ in range(setting.layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.bytes(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def dense(width: int, setting: Setting, seed: int) -> GPT:
    """Return a dense network with the usual normal weights: deviation 0.02, that of residual outputs by depth."""
    model, generator = GPT(width, setting), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("proj.weight", "fc2.weight"))
                std = 0.02 / math.sqrt(2 * setting.layers) if residual else 0.02
                parameter.normal_(0.0, std, generator=generator)
    return model


def sparse(start: str, setting: Setting, seed: int, device: torch.device) -> nn.Module:
    """Return a network of active blocks alone, from a start of that scheme."""
    model = dense(setting.width, setting, seed)
    orthosparse.sparsify(
        model,
        setting.density,
        distribution="uniform",
        scheme=start,
        structure=setting.structure,
        exclude=["head"],
        generator=torch.Generator().manual_seed(seed),
    )
    model.to(device)
    orthosparse.compact(model)
    return model


def thin_width(parameters: int, setting: Setting) -> int:
    """Return the width, in whole heads, of the dense network whose number of parameters is nearest."""
    widths = range(setting.head, setting.width + 1, setting.head)
    with torch.device("meta"):
        return min(widths, key=lambda width: abs(size_of(GPT(width, setting)) - parameters))


def size_of(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


class Text:
    """Random windows of a text on a device; its last tenth is held out."""

    def __init__(self, path: Path, setting: Setting, device: torch.device) -> None:
        whole = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).to(device)
        self.train, self.held_out = whole[: -(len(whole) // 10)], whole[-(len(whole) // 10) :]
        self.setting, self.window = setting, torch.arange(setting.context + 1, device=device)

    def batches(self, split: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and targets without end; the same ones for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            starts = torch.randint(len(split) - len(self.window), (self.setting.batch, 1), generator=generator)
            windows = split[starts.to(split.device) + self.window].long()
            yield windows[:, :-1], windows[:, 1:]


class Run:
    """One network that is trained against the clock."""

    def __init__(self, model: nn.Module, text: Text, setting: Setting) -> None:
        self.model, self.text, self.setting = model, text, setting
        self.device = text.train.device
        self.loss = torch.compile(self._loss, fullgraph=True) if setting.compiled else self._loss

    def _loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.model(tokens)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def train(self, state: dict[str, Tensor]) -> dict[str, Any]:
        """Train from a state for the seconds that the setting has, and return what came of it."""
        self.model.load_state_dict(state)
        optimizer = self._optimizer()
        batches = self.text.batches(self.text.train, seed=1)
        self._step(optimizer, *next(batches), lr=0.0)  # compiles, and tunes kernels
        self._evaluate()
        self.model.load_state_dict(state)
        optimizer = self._optimizer()
        curve, steps, clock = {0: self._evaluate()}, 0, 0.0
        while clock < self.setting.seconds:
            begin = self._now()
            for _ in range(self.setting.evaluate):
                rate = self.setting.lr * min(1.0, (steps + 1) / self.setting.warmup)
                self._step(optimizer, *next(batches), lr=rate)
                steps += 1
                if steps % 10 == 0 and clock + self._now() - begin >= self.setting.seconds:
                    break
            clock += self._now() - begin
            curve[steps] = self._evaluate()
        return {"steps": steps, "step_ms": 1e3 * clock / steps, "bits": curve[steps], "curve": curve} | self._sizes(
            optimizer
        )

    def _optimizer(self) -> torch.optim.Optimizer:
        options: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": self.setting.weight_decay}
        return torch.optim.AdamW(
            self.model.parameters(), lr=self.setting.lr, fused=self.device.type == "cuda", **options
        )

    def _step(self, optimizer: torch.optim.Optimizer, tokens: Tensor, targets: Tensor, *, lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr
        self.loss(tokens, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    @torch.no_grad()
    def _evaluate(self) -> float:
        """Return the bits a byte of held-out text."""
        batches = self.text.batches(self.text.held_out, seed=2)
        losses = [self.loss(*next(batches)) for _ in range(self.setting.evaluations)]
        return float(torch.stack(losses).mean()) / math.log(2)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return perf_counter()

    def _sizes(self, optimizer: torch.optim.Optimizer) -> dict[str, int]:
        gradients = sum(p.grad.nbytes for p in self.model.parameters() if p.grad is not None)
        parameters = sum(p.nbytes for p in self.model.parameters())
        moments = sum(
            value.nbytes for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)
        )
        file = io.BytesIO()
        torch.save(self.model.state_dict(), file)
        peak = torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0
        return {
            "parameters": size_of(self.model),
            "training_bytes": parameters + gradients + moments,
            "checkpoint_bytes": file.tell(),
            "ddp_bytes": gradients,
            "peak_bytes": peak,
        }


def measure(
    setting: Setting, path: Path, starts: list[str], device: torch.device, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each start; sparse ones train in one compiled network, whose blocks move in place."""
    text = Text(path, setting, device)
    shared: Run | None = None
    for start in starts:
        begin = perf_counter()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        if start == "dense":
            model: nn.Module = dense(setting.width, setting, seed).to(device)
        elif start == "thin":
            with torch.device("meta"):
                blocks = sum(p.numel() for n, p in GPT(setting.width, setting).named_parameters() if _is_sparse(n))
                rest = size_of(GPT(setting.width, setting)) - blocks
            width = thin_width(rest + round(setting.density * blocks), setting)
            model = dense(width, setting, seed).to(device)
        else:
            model = sparse(start, setting, seed, device)
        state = copy.deepcopy(model.state_dict())
        made = perf_counter() - begin
        if start in ("dense", "thin"):
            run = Run(model, text, setting)
        else:
            run = shared = shared or Run(model, text, setting)
        del model
        found = run.train(state)
        yield {"start": start, "seed": seed, "start_seconds": made, **found, **asdict(setting), **provenance(device)}
        del run, state


def _is_sparse(name: str) -> bool:
    return name.startswith("blocks.") and name.endswith(("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight"))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as lines, ratios to the first one, bits at equal time and at the last step that all have."""
    first = rows[0]
    common = max(set.intersection(*(set(row["curve"]) for row in rows)))
    lines = [f"start    step ms  speed  parameters  training  checkpoint  DDP    bits at equal time  at step {common}"]
    for row in rows:
        speed = first["step_ms"] / row["step_ms"]
        shares = [row[name] / first[name] for name in ("training_bytes", "checkpoint_bytes", "ddp_bytes")]
        lines.append(
            f"{row['start']:8s} {row['step_ms']:7.2f} {speed:5.2f}x {row['parameters']:11,d}"
            f"  {shares[0]:.3f}x    {shares[1]:.3f}x      {shares[2]:.3f}x {row['bits']:10.4f} {row['steps']:8d} steps"
            f" {row['curve'][common]:9.4f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="a file for the rows, written as they come")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    for name, value in asdict(Setting()).items():
        if isinstance(value, bool):
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=value)
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    given = vars(parser.parse_args())
    setting = Setting(**{name: given[name] for name in asdict(Setting())})
    torch.set_float32_matmul_precision("high")
    rows = []
    for row in measure(setting, given["text"], given["starts"], torch.device(given["device"]), given["seed"]):
        rows.append(row)
        if given["out"]:
            with given["out"].open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(
            f"{row['start']}: {row['step_ms']:.2f} ms a step, {row['bits']:.4f} bits after {row['steps']} steps",
            flush=True,
        )
    print(table(rows))


if __name__ == "__main__":
    main()
