import pytest
import torch

from orthosparse.lab.training.mixing import mix

POSITION = (0, 0, 0)


@pytest.fixture
def batch(generator):
    return torch.rand(8, 3, 10, 12, generator=generator), torch.randint(5, (8,), generator=generator)


@pytest.mark.parametrize("shares", [{"mixup": 0.8, "cutmix": 0.0}, {"mixup": 0.0, "cutmix": 1.0}])
@pytest.mark.parametrize("step", range(5))
def test_targets_are_the_parts_of_each_image_that_are_there(batch, shares, step):
    images, labels = batch
    mixed, target = mix(images, labels, 5, **shares, seed=3, position=(0, step, 0))
    torch.testing.assert_close(target.sum(1), torch.ones(8))
    # An image of ones among zeros shows its share: mix the labels as images and read the mean.
    ones = torch.zeros_like(images)
    ones[0] = 1
    shown, _ = mix(ones, labels, 5, **shares, seed=3, position=(0, step, 0))
    share = shown[0].mean()
    expected = torch.zeros(5)
    expected[labels[0]] += share
    expected[labels[-1]] += 1 - share
    torch.testing.assert_close(target[0], expected, atol=1e-6, rtol=0)
    assert mixed.shape == images.shape


def test_cutmix_takes_every_pixel_from_one_of_the_two(batch):
    images, labels = batch
    mixed, _ = mix(images, labels, 5, mixup=0.0, cutmix=1.0, seed=1, position=POSITION)
    assert ((mixed == images) | (mixed == images.flip(0))).all()


def test_mixing_follows_from_seed_and_place_alone(batch):
    images, labels = batch
    draw = lambda seed, position: mix(images, labels, 5, mixup=0.8, cutmix=1.0, seed=seed, position=position)[0]  # noqa: E731
    assert torch.equal(draw(1, (0, 1, 0)), draw(1, (0, 1, 0)))
    others = [draw(2, (0, 1, 0)), draw(1, (1, 1, 0)), draw(1, (0, 2, 0)), draw(1, (0, 1, 1))]
    assert not any(torch.equal(draw(1, (0, 1, 0)), other) for other in others)


def test_both_are_chosen_about_equally_often(batch):
    images, labels = batch
    pasted = 0
    for step in range(200):
        mixed, _ = mix(images, labels, 5, mixup=0.8, cutmix=1.0, seed=0, position=(0, step, 0))
        pasted += bool(((mixed == images) | (mixed == images.flip(0))).all())
    assert 70 < pasted < 130  # 100 +- 4 standard deviations


def test_the_batch_itself_is_not_changed(batch):
    images, labels = batch
    before = images.clone()
    mix(images, labels, 5, mixup=0.8, cutmix=1.0, seed=0, position=POSITION)
    assert torch.equal(images, before)


def test_nothing_to_mix_is_an_error(batch):
    with pytest.raises(ValueError, match="mixup, cutmix"):
        mix(*batch, 5, mixup=0.0, cutmix=0.0, seed=0, position=POSITION)
