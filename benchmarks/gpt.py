"""Train a byte-level GPT dense, thin, and block-sparse from several starts, each for the same time, on real text.

python benchmarks/gpt.py --text FILE [--out rows.jsonl] [--seconds 30] [--starts dense thin base scaled eoi]

Every network is a pre-LN transformer whose products run in bfloat16 and which torch compiles; the sparse ones hold only
their active blocks (`orthosparse.compact`). `thin` is a dense network of the same depth with as many parameters as the
sparse ones. First the steps of all starts are timed. Then each start tries some learning rates for a few seconds and
trains with the best of them; the rate rises for a tenth of the time and falls along a cosine to a tenth of its height.
The clock runs while a network trains, not while it compiles or is evaluated, so that a row has the bits a byte at equal
time. A tenth of the text is held out. The text may be compressed (.xz).
"""

import argparse
import copy
import io
import json
import lzma
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpt_networks import Shape, build, size_of
from orthosparse.lab.provenance import provenance

STARTS = ("dense", "thin", "base", "scaled", "eoi")


@dataclass(frozen=True)
class Setting(Shape):
    """What is trained: the network, the batch, the optimizer and the clock."""

    batch: int = 16
    weight_decay: float = 0.1
    seconds: float = 30.0
    trial: float = 5.0  # seconds of training with each learning rate before
    evaluate: int = 100  # steps between evaluations
    evaluations: int = 8  # batches of each
    compiled: bool = True


class Text:
    """Random windows of a text on a device; its last tenth is held out."""

    def __init__(self, path: Path, setting: Setting, device: torch.device) -> None:
        read = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        whole = torch.frombuffer(bytearray(read), dtype=torch.uint8).to(device)
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
    """One network that is trained against the clock, from one state or another."""

    def __init__(self, model: nn.Module, text: Text, setting: Setting) -> None:
        self.model, self.text, self.setting = model, text, setting
        self.device = text.train.device
        self.loss = torch.compile(self._loss, fullgraph=True) if setting.compiled else self._loss

    def _loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.model(tokens)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def step_ms(self, state: dict[str, Tensor], steps: int = 20) -> float:
        """Return the milliseconds of a training step from a state: the shortest of three means over some steps."""
        self.model.load_state_dict(state)
        optimizer, batches, times = self._optimizer(), self.text.batches(self.text.train, seed=1), []
        for _ in range(3):  # compiles, and tunes kernels
            self._step(optimizer, *next(batches), lr=0.0)
        for _ in range(3):
            begin = self._now()
            for _ in range(steps):
                self._step(optimizer, *next(batches), lr=0.0)
            times.append(1e3 * (self._now() - begin) / steps)
        return min(times)

    def train(self, state: dict[str, Tensor], *, seconds: float, lr: float) -> dict[str, Any]:
        """Train from a state for so long, and return what came of it."""
        self.model.load_state_dict(state)
        optimizer, batches = self._optimizer(), self.text.batches(self.text.train, seed=1)
        curve, steps, clock = {0: self._evaluate()}, 0, 0.0
        while clock < seconds:
            begin = self._now()
            for _ in range(self.setting.evaluate):
                passed = (clock + perf_counter() - begin) / seconds
                self._step(optimizer, *next(batches), lr=lr * schedule(passed))
                steps += 1
                if steps % 10 == 0 and clock + self._now() - begin >= seconds:
                    break
            clock += self._now() - begin
            curve[steps] = self._evaluate()
        return {"steps": steps, "bits": curve[steps], "curve": curve, **self._sizes(optimizer)}

    def _optimizer(self) -> torch.optim.Optimizer:
        options: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": self.setting.weight_decay}
        return torch.optim.AdamW(self.model.parameters(), fused=self.device.type == "cuda", **options)

    def _step(self, optimizer: torch.optim.Optimizer, tokens: Tensor, targets: Tensor, *, lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr
        self.loss(tokens, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def _evaluate(self) -> float:
        """Return the bits a byte of held-out text; by the graph that trains, without another to compile."""
        batches = self.text.batches(self.text.held_out, seed=2)
        losses = [self.loss(*next(batches)).detach() for _ in range(self.setting.evaluations)]
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
        return {
            "parameters": size_of(self.model),
            "training_bytes": parameters + gradients + moments,
            "checkpoint_bytes": file.tell(),
            "ddp_bytes": gradients,
        }


def schedule(passed: float) -> float:
    """Return the learning rate, of 1 at its height, when this fraction of the time has passed."""
    if passed < 0.1:
        return (passed + 1e-3) / (0.1 + 1e-3)
    return 0.55 + 0.45 * math.cos(math.pi * min(1.0, (passed - 0.1) / 0.9))


def measure(
    setting: Setting, path: Path, starts: list[str], rates: list[float], device: torch.device, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each start; sparse ones train in one compiled network, whose blocks move in place."""
    text = Text(path, setting, device)
    runs, states, times, built = {}, {}, {}, {}
    shared: Run | None = None
    for start in starts:
        begin = perf_counter()
        model = build(start, setting, seed, device)
        states[start], built[start] = copy.deepcopy(model.state_dict()), perf_counter() - begin
        if start in ("dense", "thin"):
            runs[start] = Run(model, text, setting)
        else:
            runs[start] = shared = shared or Run(model, text, setting)
        del model
        times[start] = runs[start].step_ms(states[start])
        print(f"{start}: {times[start]:.2f} ms a step, {perf_counter() - begin:.0f} s to build and compile", flush=True)
    for start in starts:
        run, state = runs[start], states[start]
        trials = {lr: run.train(state, seconds=setting.trial, lr=lr)["bits"] for lr in rates if len(rates) > 1}
        lr = min(trials, key=trials.__getitem__) if trials else rates[0]
        found = run.train(state, seconds=setting.seconds, lr=lr)
        row = {"start": start, "seed": seed, "start_seconds": built[start], "step_ms": times[start], "lr": lr}
        yield {**row, "trials": trials, **found, **asdict(setting), **provenance(device)}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as lines, ratios to the first one, bits at equal time and at the last step that all have."""
    first = rows[0]
    common = max(set.intersection(*(set(row["curve"]) for row in rows)))
    lines = [
        f"start    step ms  speed  parameters  training  checkpoint  DDP    rate   bits at equal time  at {common}"
    ]
    for row in rows:
        speed = first["step_ms"] / row["step_ms"]
        shares = [row[name] / first[name] for name in ("training_bytes", "checkpoint_bytes", "ddp_bytes")]
        lines.append(
            f"{row['start']:8s} {row['step_ms']:7.2f} {speed:5.2f}x {row['parameters']:11,d}  {shares[0]:.3f}x    "
            f"{shares[1]:.3f}x      {shares[2]:.3f}x {row['lr']:.0e} {row['bits']:8.4f} {row['steps']:6d} steps "
            f"{row['curve'][common]:9.4f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="a file for the rows, written as they come")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-4, 1e-3], help="learning rates to try")
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
    device = torch.device(given["device"])
    for row in measure(setting, given["text"], given["starts"], given["rates"], device, given["seed"]):
        rows.append(row)
        if given["out"]:
            with given["out"].open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(f"{row['start']}: {row['bits']:.4f} bits after {row['steps']} steps, {row['trials']}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
