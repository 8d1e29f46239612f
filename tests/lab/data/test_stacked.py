import torch

from orthosparse.lab.data import Augmentation, Loader, Normalisation, Split
from orthosparse.lab.data.stacked import StackedLoader


def loaders_of(recipe, generator):
    images = torch.randint(256, (25, 3, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.arange(25) % 10, Normalisation((0.4,) * 3, (0.2,) * 3))
    return [Loader(split, batch=10, recipe=recipe, seed=seed, augment_seed=seed + 9) for seed in (1, 2, 3)]


def check_same(recipe, generator):
    loaders = loaders_of(recipe, generator)
    stacked = StackedLoader(loaders)
    assert (len(stacked), stacked.batch, [stacked.count(step) for step in range(3)]) == (3, 10, [10, 10, 5])
    for epoch, start in ((0, 0), (1, 0), (1, 2), (0, 1)):
        batches = list(stacked.epoch(epoch, start))
        for member, loader in enumerate(loaders):
            alone = list(loader.epoch(epoch, start))
            assert len(alone) == len(batches)
            for (images, labels), (image, label) in zip(batches, alone, strict=True):
                assert torch.equal(images[member], image)
                assert torch.equal(labels[member], label)


def test_every_member_gets_the_batches_that_it_gets_alone(generator):
    check_same(None, generator)


def test_crops_flips_and_tints_are_each_members_own(generator):
    check_same(Augmentation(pad=2, flip=True, hue=0.1, saturation=0.1, rotation=10.0), generator)
