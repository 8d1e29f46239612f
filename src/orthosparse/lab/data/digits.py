"""Handwritten digits of 8 x 8 pixels that come with scikit-learn: real data without a download."""

from pathlib import Path

import torch

from orthosparse.lab.data._splits import Dataset, Normalisation, Split, hold_out

_TEST = 360


def digits(root: Path | None = None, *, validation: bool = True) -> Dataset:
    """Return the 1797 digits; the last 360 by index are the test set.

    Pixels are 0 to 16. Mean and deviation are those of the 1437 others.
    """
    del root  # embedded
    from sklearn.datasets import load_digits

    held = load_digits()
    normalisation = Normalisation((0.3054,), (0.3755,), unit=16.0)
    images = torch.from_numpy(held.images).to(torch.uint8).unsqueeze(1)
    whole = Split(images, torch.from_numpy(held.target).long(), normalisation)
    train, kept = hold_out(whole.part(0, len(whole) - _TEST), validation)
    test = whole.part(len(whole) - _TEST, len(whole))
    return Dataset("digits", train, kept, test, classes=10)
