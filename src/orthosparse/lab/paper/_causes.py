"""Why numbers of ours differ from the paper's by more than their uncertainty, where the reason is known."""

_GRASP = "GraSP keeps the largest theta * Hg here, as its authors define it; the released code keeps the smallest"
_SNIP = "SNIP scores the cross-entropy here; the released code takes logits for log-probabilities"
_SYNFLOW = "SynFlow scores the logits here; the released code scores log-probabilities"
_MACHINE = "another machine and a faster training loop"
AI = "AI runs on the GPU here and stops where its loss no longer falls, instead of after 10^4 iterations"
_EOI = "the rotations are sampled by a compiled kernel here"

# By the table's item and title, or its item alone, and the block or the start of a line.
_CAUSES = {
    ("deep_networks", "Test accuracy of 1000-layer networks, density 12.5 %", "grasp"): _GRASP,
    ("deep_networks", "Test accuracy of 1000-layer networks, density 12.5 %", "snip"): _SNIP,
    ("contemporary", "", "grasp"): _GRASP,
    ("contemporary", "", "synflow"): _SYNFLOW,
    ("contemporary_5", "", "grasp"): _GRASP,
    ("contemporary_5", "", "synflow"): _SYNFLOW,
    ("activations", "", "grasp"): _GRASP,
    ("activations", "", "synflow"): _SYNFLOW,
    ("angles", "", ""): "the paper does not name its distribution; ours is ERK",
    ("init_runtime", "", "base"): _MACHINE,
    ("init_runtime", "", "ai"): AI,
    ("init_runtime", "", "eoi"): _EOI,
}


def cause_of(item: str, title: str, line: str) -> str:
    """Return the known reason for a difference in a line ``distribution/scheme`` of a table; empty if there is none.

    Example:
        >>> cause_of("init_runtime", "Seconds", "erk/base")
        'another machine and a faster training loop'
    """
    names = [*line.split("/"), ""]
    found = [_CAUSES.get((item, where, name)) for where in (title, "") for name in names]
    return next(filter(None, found), "")
