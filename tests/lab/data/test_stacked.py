import torch

from orthosparse.lab.data import Augmentation, Loader, Normalisation, Split
from orthosparse.lab.data.loader import draw_plan
from orthosparse.lab.data.stacked import StackedLoader


def loaders_of(recipe, generator, seeds=(1, 2, 3)):
    images = torch.randint(256, (25, 3, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.arange(25) % 10, Normalisation((0.4,) * 3, (0.2,) * 3))
    return [Loader(split, batch=10, recipe=recipe, seed=seed, augment_seed=seed + 9) for seed in seeds]


def check_same(recipe, generator, **given):
    loaders = loaders_of(recipe, generator, **given)
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


def test_members_of_one_seed_get_the_same_and_only_one_of_them_draws(generator, monkeypatch):
    recipe, drawn = Augmentation(pad=2, flip=True), []
    check_same(recipe, generator, seeds=(1, 2, 1))

    def draw(*given, **how):
        drawn.append(how["seed"])
        return draw_plan(*given, **how)

    monkeypatch.setattr("orthosparse.lab.data.loader.draw_plan", draw)
    list(StackedLoader(loaders_of(recipe, generator, seeds=(1, 2, 1))).epoch(0))
    assert drawn == [1, 2]
