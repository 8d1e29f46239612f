"""Time a training epoch of ResNet-32 and ResNet-110 on CIFAR-10: plain loop, dense, masked.

python benchmarks/training.py [--root DIR] [--out rows.jsonl] [--precision tf32 bf16] [--models resnet32 resnet110]

On one H200 the targets are 1.6 s (ResNet-32) and 5.5 s (ResNet-110) an epoch, 2.5 times the plain loop's speed, and
masks that cost at most 10 %.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from orthosparse.lab.bench.training import MODELS, Setting, measure, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="the folder of CIFAR-10; without it, images are random")
    parser.add_argument("--out", type=Path, help="a file for the rows; the precision is added to its name")
    parser.add_argument("--precision", nargs="+", default=["tf32", "bf16"])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="steps of an epoch to time; 0 for all")
    parser.add_argument("--compile", action="store_true", help="also time the masked network compiled by torch")
    parser.add_argument("--channels-last", action=argparse.BooleanOptionalAction, default=None)
    args = parser.parse_args()
    for precision in args.precision:
        setting = Setting(
            models=args.models,
            root=args.root,
            precision=precision,
            device=args.device,
            repeats=args.repeats,
            steps=args.steps,
            channels_last=args.channels_last,
            compiled=args.compile,
        )
        rows = measure(setting, say=partial(print, file=sys.stderr, flush=True))
        if args.out is not None:
            out = args.out.with_name(f"{args.out.stem}-{precision}{args.out.suffix}")
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(table(setting, rows), flush=True)


if __name__ == "__main__":
    main()
