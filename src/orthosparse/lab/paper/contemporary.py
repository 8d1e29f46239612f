"""Contemporary networks at density 0.10: six networks, five distributions, three starts, and the dense ones."""

from orthosparse.lab.paper._study import CONTEMPORARY, DENSE, SEEDS, Accuracies, lines

__all__ = ["NOTES", "SEEDS", "TABLE", "TITLE", "experiments", "render"]

TITLE = "Test accuracy of contemporary networks, density 10 %"
_MARKS = (
    "Marks follow the means. The paper marks AI (52.70) as EfficientNet's best with SynFlow, where its Base has 53.19."
)

NOTES = [
    "Masks have exact counts, the same for all starts of a seed; the released code draws every entry at random.",
    "GraSP keeps the largest theta * Hg, as its authors define it, on one batch of 128 images; the released code keeps "
    "the smallest (its VGG-16 Base and AI of 33 % may come from that), summed over the whole training set twice. "
    "Both forms stand side by side for the 1000-layer networks.",
    "SynFlow scores the logits; the released code scores log-probabilities.",
    "Validation images are not augmented. For CIFAR-100 a tenth of the training images is held out; the released code "
    "trains on all of them.",
    "Layers with too few weights for an orthogonal matrix get as many as it needs, taken from the other layers.",
    "TF32 products on a GPU; test accuracy after the last epoch, as in the paper.",
]
TABLE = Accuracies(
    TITLE,
    CONTEMPORARY,
    [*lines(), *DENSE],
    {"density": 0.1},
    tiny=["erk/base", "erk/ai", "erk/eoi", "dense/base"],
    small={"resnet32/cifar10": {}},
    item="contemporary",
    notes=[_MARKS, *NOTES],
)
experiments, render = TABLE.experiments, TABLE.render
