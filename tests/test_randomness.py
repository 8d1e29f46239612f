import pytest
import torch

from orthosparse.randomness import derive, derive_seed, draw_seed


def test_the_global_generator_is_neither_read_nor_advanced(generator):
    before = torch.get_rng_state()
    draw_seed(generator)
    draw_seed(None)
    derive(3, "a")
    assert torch.equal(before, torch.get_rng_state())


def test_one_state_gives_one_seed_and_the_next_another():
    g, h = (torch.Generator().manual_seed(5) for _ in range(2))
    assert draw_seed(g) == draw_seed(h)
    assert draw_seed(g) != derive_seed(5)
    assert len({draw_seed(g) for _ in range(100)}) == 100


def test_without_a_generator_every_seed_is_new():
    assert len({draw_seed(None) for _ in range(100)}) == 100


@pytest.mark.parametrize("generator", [0, 1.5, "0", torch, torch.Generator])
def test_what_is_no_generator_is_named(generator):
    with pytest.raises(TypeError, match=r"generator: expected a torch.Generator, or None; got .*manual_seed"):
        draw_seed(generator)


def test_a_seed_that_is_given_is_the_seed():
    assert draw_seed(None, 7) == 7
    with pytest.raises(ValueError, match="seed: expected a seed or a generator; got both"):
        draw_seed(torch.Generator(), 7)


@pytest.mark.parametrize(
    ("seed", "error"), [(1.5, TypeError), (True, TypeError), (-1, ValueError), (2**63, ValueError)]
)
def test_what_is_no_seed_is_named(seed, error):
    with pytest.raises(error, match="seed: expected an integer"):
        draw_seed(None, seed)


def test_seeds_depend_on_every_name_and_their_order():
    seeds = [
        derive_seed(0),
        derive_seed(1),
        derive_seed(0, "a"),
        derive_seed(0, "a", "b"),
        derive_seed(0, "b", "a"),
        derive_seed(0, "ab"),
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_derived_seeds_do_not_change_between_versions():
    assert derive_seed(0, "layer1.0.conv1", "mask") == 2753604572165748446
