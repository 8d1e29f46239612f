"""Random wrong calls of every public function, forged state dicts and files: failures say why and change nothing.

    python benchmarks/fuzz.py [--calls 2000] [--states 2000] [--seed 0] [--record]

A call counts as wrong when it raises something else than a ValueError, TypeError or RuntimeError (or an OSError that
names a file), when the message names no argument, when a model, a tensor or torch's global generator has changed
although it failed, or when it does not end within a minute. The exit status is the number of wrong calls, up to 100;
--record appends the figures to results/benchmarks/fuzz.jsonl.
"""

import argparse
import contextlib
import inspect
import json
import logging
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import safetensors.torch
import torch
from torch import nn

import orthosparse
from fuzz_inputs import FUNCTIONS, JSON, Arguments, compacted, damage, dense, forged_state, sparse, wrong_value
from orthosparse.archives.archive import from_bytes, to_bytes
from orthosparse.lab.training import checkpoint

ALLOWED = (ValueError, TypeError, RuntimeError)
SECONDS = 60


def held(value: Any) -> list[tuple[Any, Any]]:
    """Return every tensor that a failed call must leave alone, with a copy, and the classes of modules."""
    if isinstance(value, nn.Module) and not isinstance(value, torch.jit.ScriptModule):
        tensors = [
            tensor
            for module in value.modules()
            for table in (module._parameters, module._buffers)
            for tensor in table.values()
        ]
        classes = [(module, (type(module), module.training)) for module in value.modules()]
        return [*(pair for tensor in tensors for pair in held(tensor)), *classes]
    if (
        isinstance(value, torch.Tensor)
        and not nn.parameter.is_lazy(value)
        and not value.is_meta
        and value.layout is torch.strided
    ):
        return [(value, value.detach().clone())]
    return [pair for each in value.values() for pair in held(each)] if isinstance(value, dict) else []


def unchanged(now: list[tuple[Any, Any]], before: list[tuple[Any, Any]]) -> bool:
    if len(now) != len(before):
        return False
    for (one, copy), (other, earlier) in zip(now, before, strict=True):
        same = (
            torch.equal(copy.nan_to_num(7.0), earlier.nan_to_num(7.0))
            if isinstance(copy, torch.Tensor)
            else copy == earlier
        )
        if one is not other or not same:
            return False
    return True


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Interrupt what takes too long."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def judge(function: Callable[..., Any], given: Arguments, names: set[str]) -> str | None:
    """Call, and say what is wrong with the way in which it failed; "" if it did not fail, None if it failed well."""
    before, state = held(given), torch.get_rng_state()
    try:
        with limited():
            function(**given)
        return ""
    except OSError as error:
        if error.filename is None:
            return f"names no file: {type(error).__name__}: {error}"
    except Exception as error:
        if not isinstance(error, ALLOWED) or isinstance(error, NotImplementedError | RecursionError):
            return f"{type(error).__name__}: {error}"
        if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in names):
            return f"names no argument: {type(error).__name__}: {error}"
    if not unchanged(held(given), before):
        return "something has changed"
    return None if torch.equal(torch.get_rng_state(), state) else "the global generator has moved"


class Tally:
    """Counts of calls, refusals and wrong ones, and the first of each kind of those."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: dict[str, str] = {}

    def add(self, where: str, verdict: str | None, what: str) -> None:
        self.counts["calls"] += 1
        self.counts["refused"] += verdict is None
        if verdict:
            self.counts["wrong"] += 1
            self.wrong.setdefault(f"{where}: {verdict[:150]}", what[:300])


def random_calls(number: int, choose: random.Random) -> Tally:
    """Call every public function in turn, first with good arguments, then with one or two of them replaced."""
    tally = Tally()
    for where, (function, make) in FUNCTIONS.items():
        if where != "to_semi_structured" and judge(function, make(choose), set()) != "":  # that needs a GPU
            tally.add(where, "refuses good arguments", "")
    for index in range(number):
        where, (function, make) = [*FUNCTIONS.items()][index % len(FUNCTIONS)]
        given = make(choose)
        changed = choose.sample([*given], min(len(given), choose.choice([1, 1, 2])))
        given.update({name: wrong_value(choose) for name in changed})
        names = {
            part for name in (*given, *inspect.signature(function).parameters) for part in (name, *name.split("_or_"))
        }
        tally.add(where, judge(function, given, names), f"{ {name: given[name] for name in changed} }")
    return tally


def forged_states(number: int, choose: random.Random) -> Tally:
    """Load forged state dicts of masked and compact models, and read forged files, three to one."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for index in range(number):
            if index % 4 == 3:
                tally.add(*forged_file(pathlib.Path(folder) / str(index), choose))
                continue
            source = choose.choice([sparse, compacted])(choose)
            model = choose.choice([dense, sparse, compacted])(choose)
            state = forged_state(source.state_dict() if choose.random() < 0.3 else model.state_dict(), choose)
            given = {"model": model, "state": state, "strict": choose.random() < 0.7, "assign": choose.random() < 0.3}
            verdict = judge(orthosparse.load_sparse, given, {"model", "state", "masks", "assign"})
            tally.add("load_sparse", verdict, f"{ {key: type(value).__name__ for key, value in state.items()} }")
    return tally


def forged_file(path: pathlib.Path, choose: random.Random) -> tuple[str, str | None, str]:
    """Damage a file that holds a state dict, a compact file, or a checkpoint, and read it."""
    model, kind = sparse(choose), choose.choice(["state dict", "compact file", "checkpoint"])
    if kind == "compact file":
        return "compact file", judge(orthosparse.load_compact, forged_archive(path, model, choose), {"path"}), kind
    if kind == "state dict":
        data = bytearray(safetensors.torch.save({name: value.clone() for name, value in model.state_dict().items()}))
        damage(data, choose)

        def read(model: nn.Module, state: bytes) -> None:
            try:
                found = safetensors.torch.load(state)
            except (
                safetensors.SafetensorError,
                ValueError,
                KeyError,
                OverflowError,
                AttributeError,
                TypeError,
                RuntimeError,
            ):
                return  # the file format's own reader refuses it
            orthosparse.load_sparse(model, found)

        return "file", judge(read, {"model": model, "state": bytes(data)}, {"model", "state", "masks"}), "safetensors"
    path.mkdir()
    checkpoint.save(path, 3, {"model": {name: value.clone() for name, value in model.state_dict().items()}, "step": 3})
    for file in (each for each in path.rglob("*") if each.is_file()):
        data = bytearray(file.read_bytes())
        damage(data, choose)
        file.write_bytes(data)
    return "checkpoint", judge(checkpoint.load, {"folder": path}, {"folder", str(path)}), "checkpoint"


def forged_archive(path: pathlib.Path, model: nn.Module, choose: random.Random) -> Arguments:
    """Damage a compact file, or forge what it says and give it a right checksum; return what it is loaded with."""
    orthosparse.save_compact(model, path)
    data = bytearray(path.read_bytes())
    if choose.random() < 0.5:
        damage(data, choose)
    else:
        tensors, description = from_bytes(bytes(data))
        table = choose.choice(["rows", "packed", "tied", "versions", "format"])
        entries = description[table]
        if isinstance(entries, dict) and entries and choose.random() < 0.7:
            entry = entries[choose.choice([*entries])]
            if isinstance(entry, list):
                entry[choose.randrange(len(entry))] = choose.choice(JSON)
        else:
            description[table] = choose.choice(JSON)
        if choose.random() < 0.3:
            del tensors[choose.choice([*tensors])]
        data = bytearray(to_bytes(tensors, description))
    path.write_bytes(data)
    return {"path": path, "model": choose.choice([model, dense(choose), compacted(choose)]), "assign": False}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="append the figures to results/benchmarks/fuzz.jsonl")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    start, choose = time.perf_counter(), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # some calls write files
        tallies = {"calls": random_calls(options.calls, choose), "states": forged_states(options.states, choose)}
    for kind, tally in tallies.items():
        counts = tally.counts
        print(f"{counts['calls']} {kind}: {counts['refused']} refused, {counts['wrong']} wrong")
        for where, what in tally.wrong.items():
            print(f"  {where}\n      {what}")
    if options.record:
        record(options.seed, tallies, time.perf_counter() - start)
    return min(sum(tally.counts["wrong"] for tally in tallies.values()), 100)


def record(seed: int, tallies: dict[str, Tally], seconds: float) -> None:
    """Append one row of figures."""
    from orthosparse.lab.provenance import provenance

    figures = {
        f"{kind}_{name}": tally.counts[name]
        for kind, tally in tallies.items()
        for name in ("calls", "refused", "wrong")
    }
    row = {
        "benchmark": "fuzz",
        "seed": seed,
        "functions": len(FUNCTIONS),
        **figures,
        "seconds": round(seconds, 1),
        **provenance(torch.device("cpu")),
    }
    path = pathlib.Path(__file__).parents[1] / "results" / "benchmarks" / "fuzz.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
