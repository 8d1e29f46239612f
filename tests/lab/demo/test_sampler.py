import pytest
import torch

from orthosparse.lab.demo.sampler import compare


@pytest.fixture(scope="module")
def samples():
    return {sample.role: sample for sample in compare(80, 0.1, generator=torch.Generator().manual_seed(1))}


def test_the_sparse_matrix_is_orthogonal_and_has_the_count_of_the_masked_one(samples):
    assert samples["eoi"].score < 1e-12
    assert int(samples["eoi"].mask.sum()) == int(samples["base"].mask.sum()) == 640
    assert samples["eoi"].density == 0.1


def test_masking_a_dense_orthogonal_matrix_destroys_its_spectrum(samples):
    assert samples["dense"].score < 1e-12
    # Keeping entries at random keeps the fraction d of the squared norm: the root mean square falls to sqrt(d).
    assert samples["base"].singular_values.square().mean() == pytest.approx(0.1, rel=0.1)
    assert samples["base"].score > 5


def test_the_values_are_the_dense_ones_where_the_mask_lets_them_stand(samples):
    mask = samples["base"].mask
    assert torch.equal(samples["base"].values, samples["dense"].values * mask)


def test_the_same_generator_gives_the_same_matrices(samples):
    again = compare(80, 0.1, generator=torch.Generator().manual_seed(1))
    assert all(torch.equal(sample.values, samples[sample.role].values) for sample in again)
    assert all(sample.seconds > 0 for sample in again)
