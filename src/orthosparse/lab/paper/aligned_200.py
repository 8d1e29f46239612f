"""EOI at random taps, which led the study `aligned` after 60 epochs, as long as the paper trains: a study of ours."""

from dataclasses import replace

from orthosparse.lab.paper.aligned import RESNETS, SEEDS

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "EOI at random taps on saliency masks, 200 epochs"
_STARTS = ("base", "eoi", "random")
_TABLE = replace(
    RESNETS,
    title="CIFAR-10, 200 epochs in bfloat16",
    lines=[line for line in RESNETS.lines if line.key.split("/")[1] in _STARTS],
    fields={"data": "cifar10", "precision": "bf16"},
    tiny=[f"snip/{start}" for start in _STARTS],
    small={RESNETS.columns[0].key: {}},
    notes=["Not in the paper. The start that led after 60 epochs beside base and EOI, by the paper's recipe."],
)
experiments, render = _TABLE.experiments, _TABLE.render
