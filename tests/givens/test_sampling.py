import math
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.defaults import other_defaults
from contracts.seeded import seeded
from orthosparse import givens
from orthosparse.givens import sampling, stream
from orthosparse.randomness import draw_seed

KERNEL = pytest.param("kernel", marks=pytest.mark.skipif(not sampling.has_kernel(), reason="the kernel was not built"))
BACKENDS = ["python", KERNEL]
LAWS = [{}, {"start": "permuted"}, {"angle": 0.7}, {"stop": "first"}, {"stop": "closest"}]
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_law = pytest.mark.parametrize("law", LAWS, ids=str)


def gram_error(matrix):
    """||A A^T - I||_F on the smaller side, in float64."""
    wide = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    return float((wide @ wide.T - torch.eye(len(wide), dtype=torch.float64)).norm())


def rounding_floor(dtype, size, count):
    """What casting an exactly orthogonal matrix may cost: ||D|| (2 + ||D||) for a change D of the matrix.

    Each entry moves by half a unit in the last place, relative (sum of squares: `size`), or absolute when subnormal.
    """
    info = torch.finfo(dtype)
    change = 0.51 * info.eps * (math.sqrt(size) + math.sqrt(count) * info.smallest_normal)
    return change * (2 + change) + 1e-12


@st.composite
def questions(draw, largest=300):
    shape = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    count = draw(st.integers(min(shape), shape[0] * shape[1]))
    return shape, count, draw(st.integers(0, 2**32))


# --- Exactness -------------------------------------------------------------------------------------------------------


@every_backend
@settings(max_examples=60)
@given(question=questions(), start=st.sampled_from(["identity", "permuted"]))
def test_count_is_exact_and_rows_are_orthonormal(backend, question, start):
    shape, count, seed = question
    values, mask = givens.sample(shape, count, start=start, generator=seeded(seed), backend=backend)
    assert values.shape == mask.shape == shape
    assert int(mask.sum()) == count
    assert not values[~mask].any()
    assert gram_error(values) <= 1e-12


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@settings(max_examples=15)
@given(question=questions())
def test_every_dtype_is_orthogonal_to_its_rounding_floor(backend, dtype, question):
    shape, count, seed = question
    values, mask = givens.sample(shape, count, generator=seeded(seed), dtype=dtype, backend=backend)
    assert values.dtype == dtype
    assert int(mask.sum()) == count
    assert gram_error(values) <= rounding_floor(dtype, min(shape), count)


@every_backend
def test_the_mask_does_not_depend_on_the_dtype(backend):
    masks = [
        givens.sample((70, 90), 2000, angle=0.01, generator=seeded(), dtype=dtype, backend=backend)[1]
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    ]
    assert all(torch.equal(mask, masks[0]) for mask in masks)


@every_backend
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (64, 64), (65, 130), (130, 65)])
def test_full_and_nearly_full_matrices_are_reached(backend, shape):
    size = shape[0] * shape[1]
    for count in {size, max(size - 1, min(shape)), max(round(0.99 * size), min(shape))}:
        values, mask = givens.sample(shape, count, generator=seeded(), backend=backend)
        assert int(mask.sum()) == count
        assert gram_error(values) <= 1e-12
    assert bool((givens.sample(shape, size, generator=seeded(), backend=backend)[0] != 0).all())


def test_a_count_out_of_reach_is_met_by_zero_valued_entries_anywhere():
    # No orthogonal 2 x 2 matrix has three non-zeros: the third active entry is one of the two zeros of the identity.
    values, masks = givens.sample_batch(2000, (2, 2), 3, generator=seeded())
    assert torch.equal(values, torch.eye(2, dtype=torch.float64).expand(2000, 2, 2))
    above = int(masks[:, 0, 1].sum())
    assert above + int(masks[:, 1, 0].sum()) == 2000
    assert abs(above - 1000) < 4 * math.sqrt(500)


@pytest.mark.parametrize(("size", "density"), [(128, 0.0625), (128, 0.125), (256, 0.125), (256, 0.5)])
def test_few_active_entries_have_no_value(size, density):
    count = round(density * size * size)
    values, _ = givens.sample_batch(20, (size, size), count, generator=seeded())
    missing = count - (values != 0).sum((1, 2))
    assert int(missing.min()) >= 0
    assert float(missing.double().mean()) <= 1e-3 * count


# --- An independent oracle: explicit rotation matrices, Python sets, libm --------------------------------------------


def word(seed, purpose, counter):
    golden, low = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & low
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & low
        return z ^ (z >> 31)

    key = mix(mix((seed + golden) & low) + purpose * golden & low)  # member 0 of a batch
    return mix(key + (counter + 1) * golden & low)


def rotation_matrix(size, i, j, angle):
    matrix = torch.eye(size, dtype=torch.float64)
    matrix[i, i] = matrix[j, j] = math.cos(angle)
    matrix[i, j], matrix[j, i] = -math.sin(angle), math.sin(angle)
    return matrix


def oracle(rows, cols, count, seed, stop="exact", angle=None, start="identity"):
    """Algorithm 1 as the paper writes it, for rows <= cols, on matrices with exact supports beside them."""
    order, signs = list(range(cols)), [1.0] * rows
    if start == "permuted":
        for row in range(rows):
            drawn = word(seed, 2, row)
            other = row + ((drawn >> 32) * (cols - row) >> 32)
            order[row], order[other] = order[other], order[row]
            signs[row] = -1.0 if drawn % 2 else 1.0
    a = torch.zeros(rows, cols, dtype=torch.float64)
    a[range(rows), order[:rows]] = torch.tensor(signs, dtype=torch.float64)
    mask, attempt, idle = a != 0, 0, 0
    states, useful = [(a, mask)], 1
    while int(states[-1][1].sum()) < count and idle < 8 * (cols + 64):
        a, mask = states[-1]
        drawn, turn = word(seed, 1, 2 * attempt), word(seed, 1, 2 * attempt + 1)
        i, j = (drawn >> 32) * cols >> 32, (drawn % 2**32) * (cols - 1) >> 32
        i, j = sorted((i, j + (j >= i)))
        inside = ((2 * ((turn % 2**62) >> 10) + 1) / 2**53 - 0.5) * math.pi / 2
        phi = angle if angle is not None else (turn >> 62) * math.pi / 2 + inside
        either, attempt = mask[:, i] | mask[:, j], attempt + 1
        after = mask.clone()
        after[:, i] = after[:, j] = either
        gain = int(after.sum()) - int(mask.sum())
        if stop == "exact" and int(after.sum()) > count:
            idle += 8
        elif either.any():
            idle = 0 if gain else idle + (stop == "exact" and count - int(mask.sum()) < rows)
            states.append((a @ rotation_matrix(cols, i, j, phi), after))
            useful = len(states) if gain or stop != "exact" else useful
    states = states[:useful]
    a, mask = states[-1]
    if stop == "closest" and len(states) > 1 and int(mask.sum()) - count > count - int(states[-2][1].sum()):
        a, mask = states[-2]
    mask, missing = mask.clone(), count - int(mask.sum())
    for k in range(missing if stop == "exact" else 0):
        free = [(row, col) for col in range(cols) for row in range(rows) if not mask[row, col]]
        mask[free[word(seed, 3, k) % len(free)]] = True
    return a, mask


@every_backend
@every_law
@settings(max_examples=25)
@given(question=questions(largest=14))
def test_samples_equal_products_of_explicit_rotation_matrices(backend, law, question):
    shape, count, seed = question
    values, mask = givens.sample(shape, count, generator=seeded(seed), backend=backend, **law)
    expected, active = oracle(min(shape), max(shape), count, draw_seed(seeded(seed)), **law)
    if shape[0] > shape[1]:
        expected, active = expected.T, active.T
    assert torch.equal(mask, active)
    # Entries off the mask of the explicit product are zero but for cancellations that rounding leaves.
    assert torch.allclose(values, expected, rtol=0, atol=1e-14)


# --- One matrix, many ways to it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [KERNEL])
@every_law
@settings(max_examples=25)
@given(question=questions())
def test_kernel_and_python_agree(backend, law, question):
    shape, count, seed = question
    values, mask = givens.sample(shape, count, generator=seeded(seed), backend=backend, **law)
    expected, active = givens.sample(shape, count, generator=seeded(seed), backend="python", **law)
    assert torch.equal(mask, active)
    assert float((values - expected).abs().max()) <= 1e-15


@every_backend
@every_law
@pytest.mark.parametrize("shape", [(150, 200), (200, 150), (1100, 30), (30, 1100)])
def test_shards_make_the_whole_matrix_bit_for_bit(backend, law, shape):
    count = 20 * max(shape)
    options = {"dtype": torch.float32, "backend": backend, **law}
    edges = [0, *(cut for cut in (0, 1, 22, 64, 65, 65, 128, 1030) if cut < shape[0]), shape[0]]
    whole = givens.sample(shape, count, generator=seeded(), **options)
    pairs = list(pairwise(edges))
    shards = [givens.sample(shape, count, rows=pair, generator=seeded(), **options) for pair in pairs]
    for part, parts in zip(whole, zip(*shards, strict=True), strict=True):
        assert torch.equal(torch.cat(parts), part)
    stored = [givens.sample_csr(shape, count, rows=pair, generator=seeded(), **options).to_dense() for pair in pairs]
    assert torch.equal(torch.cat(stored), givens.sample_csr(shape, count, generator=seeded(), **options).to_dense())


@pytest.mark.parametrize("backend", [KERNEL])
@pytest.mark.parametrize("shape", [(300, 400), (400, 300)])
@pytest.mark.parametrize("threads", [2, 5, 400])
def test_bits_do_not_depend_on_the_threads(backend, shape, threads):
    options = {"count": 9000, "generator": None, "backend": backend}
    for sampler in (givens.sample, givens.sample_csr):
        one, many = (sampler(shape, **{**options, "generator": seeded()}, threads=k) for k in (1, threads))
        if sampler is givens.sample_csr:
            one, many = [(m.crow_indices(), m.col_indices(), m.values()) for m in (one, many)]
        assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))
    one, many = (givens.sample_batch(7, shape, **{**options, "generator": seeded()}, threads=k) for k in (1, threads))
    assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))


@every_backend
def test_batch_members_are_samples_that_know_nothing_of_each_other(backend):
    options = {"backend": backend, "start": "permuted"}
    values, masks = givens.sample_batch(4, (20, 30), [100, 200, 300, 400], generator=seeded(), **options)
    fewer, _ = givens.sample_batch(2, (20, 30), [100, 200], generator=seeded(), **options)
    first, mask = givens.sample((20, 30), 100, generator=seeded(), **options)
    assert masks.sum((1, 2)).tolist() == [100, 200, 300, 400]
    assert torch.equal(values[:2], fewer)
    assert torch.equal(values[0], first)
    assert torch.equal(masks[0], mask)
    twins, _ = givens.sample_batch(2, (20, 30), 100, generator=seeded(), **options)
    assert not torch.equal(twins[0], twins[1])
    assert givens.sample_batch(0, (20, 30), 100, **options)[0].shape == (0, 20, 30)


@every_backend
@every_law
@pytest.mark.parametrize("count", [200, 700, 12_000, 30_000])
def test_compressed_rows_store_the_active_entries_of_the_same_matrix(backend, law, count):
    for shape in ((150, 200), (200, 150)):
        values, mask = givens.sample(shape, count, generator=seeded(), backend=backend, **law)
        stored = givens.sample_csr(shape, count, generator=seeded(), backend=backend, **law)
        indices, ones = (stored.crow_indices(), stored.col_indices()), torch.ones(stored.values().numel())
        pattern = torch.sparse_csr_tensor(*indices, ones, shape, check_invariants=True)  # sorted, no entry twice
        assert torch.equal(pattern.to_dense() > 0, mask)
        assert torch.allclose(stored.to_dense(), values, rtol=0, atol=0 if backend == "kernel" else 1e-15)


@every_backend
def test_compressed_rows_never_make_the_full_matrix(backend):
    size = 400_000 if backend == "kernel" else 30_000  # the full matrix: 1.3 TB, 7 GB
    stored = givens.sample_csr((size, size), size + size // 5, generator=seeded(), dtype=torch.float32, backend=backend)
    assert stored.shape == (size, size)
    assert stored.dtype == torch.float32
    assert stored.values().numel() == size + size // 5
    rows = torch.repeat_interleave(torch.arange(size), torch.diff(stored.crow_indices()))
    norms = torch.zeros(size).index_add_(0, rows, stored.values().square())
    assert torch.allclose(norms, torch.ones(size))


# --- The law ---------------------------------------------------------------------------------------------------------


@every_backend
@settings(max_examples=40)
@given(question=questions(largest=40))
def test_first_and_closest_stop_where_they_say(backend, question):
    shape, count, seed = question
    path = givens.counts_after(shape, 3000, generator=seeded(seed)).tolist()
    reached = next((t for t, total in enumerate(path) if total >= count), None)
    if reached is None:
        return
    after, before = path[reached], path[max(reached - 1, 0)]
    nearest = before if after - count > count - before else after
    for stop, total in (("first", after), ("closest", nearest)):
        values, mask = givens.sample(shape, count, stop=stop, generator=seeded(seed), backend=backend)
        assert int(mask.sum()) == total
        assert gram_error(values) <= 1e-12


@every_backend
@pytest.mark.parametrize("shape", [(9, 12), (12, 9)])
def test_rotate_does_exactly_as_many_rotations(backend, shape):
    path = givens.counts_after(shape, 60, generator=seeded()).tolist()
    for rotations in (0, 1, 2, 17, 60):
        values, mask = givens.rotate(shape, rotations, generator=seeded(), backend=backend)
        assert int(mask.sum()) == path[rotations]
        assert gram_error(values) <= 1e-12
    assert givens.rotate((1, 1), 5, backend=backend)[0].tolist() == [[1.0]]


def test_a_rotation_mixes_two_columns_as_in_the_paper():
    values, mask = givens.rotate((5, 5), 1, angle=0.3, generator=seeded())
    i, j = (mask.sum(0) == 2).nonzero().flatten().tolist()
    assert torch.allclose(values, rotation_matrix(5, i, j, 0.3), rtol=0, atol=1e-16)


def test_pairs_of_columns_and_their_angles_are_uniform():
    pairs = dict.fromkeys(combinations(range(4), 2), 0)
    angles = []
    for seed in range(3000):
        values, mask = givens.rotate((4, 4), 1, generator=seeded(seed))
        i, j = (mask.sum(0) == 2).nonzero().flatten().tolist()
        pairs[i, j] += 1
        angles.append(math.atan2(values[j, i], values[i, i]) % (2 * math.pi) / (2 * math.pi))
    assert max(abs(times - 500) for times in pairs.values()) < 4 * math.sqrt(500 * 5 / 6)
    empirical = torch.arange(1, 3001) / 3000
    distance = (torch.tensor(sorted(angles)) - empirical).abs().max()
    assert float(distance) < 1.95 / math.sqrt(3000)  # Kolmogorov and Smirnov, one in a thousand


def test_identity_is_the_plain_start_and_permuted_a_uniform_signed_one():
    assert torch.equal(givens.sample((3, 5), 3)[0], torch.eye(3, 5, dtype=torch.float64))
    assert torch.equal(givens.sample((5, 3), 3)[0], torch.eye(5, 3, dtype=torch.float64))
    values, masks = givens.sample_batch(3000, (3, 5), 3, start="permuted", generator=seeded())
    assert torch.equal(values.abs(), masks.double())
    assert bool((masks.sum(2) == 1).all())
    assert bool((masks.sum(1) <= 1).all())
    assert float((masks.double().mean(0) - 0.2).abs().max()) < 4 * math.sqrt(0.16 / 3000)
    assert abs(float(values.sum((1, 2)).mean())) < 4 * math.sqrt(3 / 3000)


@pytest.mark.parametrize("angle", [math.pi / 180, math.pi * 80 / 180, -2.0])
def test_fixed_angles_give_exact_counts_too(angle):
    values, mask = givens.sample((100, 100), 1000, angle=angle, generator=seeded())
    assert int(mask.sum()) == 1000
    assert gram_error(values) <= 1e-12


@every_backend
def test_the_matrix_of_a_seed_stays_what_it_is(backend):
    values, mask = givens.sample((3, 4), 8, start="permuted", generator=seeded(7), backend=backend)
    expected = [
        [-0.47994348058988123, 0.0, 0.0, 0.8772994103721204],
        [0.6717664540444632, -0.6431730507334823, 0.0, 0.3675027320044213],
        [-0.5642553381757219, -0.7657208543654701, 0.0, -0.30868671259063973],
    ]
    assert mask.int().tolist() == [[1, 0, 0, 1], [1, 1, 0, 1], [1, 1, 0, 1]]
    assert torch.allclose(values, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)
    assert not torch.signbit(values[~mask]).any()


def test_the_random_words_of_a_seed_stay_what_they_are():
    key = stream.stream_key(0, 0, stream.ROTATIONS)
    assert stream.words(key, 2) == [0x238275BC38FCBE91, 0xF89A2566B5822C54]
    assert stream.pairs(key, 0, 4, 10) == ([1, 2, 5, 7], [3, 6, 6, 8])
    assert stream.pairs(key, 2, 2, 10) == ([5, 7], [6, 8])
    cosines, sines = stream.turns(key, [0, 1])
    assert [cosine.hex() for cosine in cosines] == ["0x1.22b64b84f7cbap-1", "0x1.616435c16dba0p-3"]
    assert [sine.hex() for sine in sines] == ["-0x1.a5765a1bff4e8p-1", "-0x1.f851eb10b6d47p-1"]


def test_turns_are_unit_vectors_to_rounding_and_never_a_quarter():
    cosines, sines = (torch.tensor(part, dtype=torch.float64) for part in stream.turns(1, list(range(20_000))))
    assert float((cosines.square() + sines.square() - 1).abs().max()) <= 4.5e-16
    assert bool((cosines != 0).all())
    assert bool((sines != 0).all())


# --- Randomness and bad input ----------------------------------------------------------------------------------------


def test_a_default_device_and_dtype_do_not_matter():
    calls = {
        "sample": lambda: givens.sample((6, 8), 20, generator=seeded()),
        "half": lambda: givens.sample((6, 8), 20, generator=seeded(), dtype=torch.float16),
        "python": lambda: givens.sample((6, 8), 20, generator=seeded(), backend="python"),
        "sample_batch": lambda: givens.sample_batch(2, (6, 8), [10, 20], generator=seeded()),
        "rotate": lambda: givens.rotate((6, 8), 5, start="permuted", generator=seeded()),
        "partial": lambda: givens.partial((8, 6), 3, start="permuted", generator=seeded()),
        "sample_csr": lambda: [givens.sample_csr((6, 8), 20, generator=seeded()).to_dense()],
        "counts_after": lambda: [givens.counts_after((6, 8), 5, generator=seeded())],
        "expected_density": lambda: [givens.expected_density(6, 5)],
    }
    for name, call in calls.items():
        expected = call()
        with other_defaults():
            found = call()
        for one, other in zip(found, expected, strict=True):
            assert (one.dtype, one.device) == (other.dtype, other.device), name
            assert torch.equal(one, other), name


def test_one_seed_is_drawn_and_the_global_generator_is_left_alone():
    before, generator, other = torch.get_rng_state(), seeded(), seeded()
    givens.sample((30, 30), 200, generator=generator)
    draw_seed(other)
    assert torch.equal(generator.get_state(), other.get_state())
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(givens.sample((30, 30), 200)[1], givens.sample((30, 30), 200)[1])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (((4, 6), 3), {}, ValueError, r"count: .*at least 4 active entries; got 3"),
        (((4, 6), 25), {}, ValueError, r"count: expected at most 24 .*got 25"),
        (((4, 6), True), {}, TypeError, r"count: expected an integer; got True"),
        (((4, 6), 8.0), {}, TypeError, r"count: expected an integer; got 8\.0"),
        (((4,), 8), {}, ValueError, r"shape: expected two sizes"),
        (("46", 8), {}, ValueError, r"shape: expected two sizes"),
        (((0, 6), 8), {}, ValueError, r"shape: expected sizes from 1 .*got 0 x 6"),
        (((4, -6), 8), {}, ValueError, r"shape: .*got 4 x -6"),
        (((4, 6.0), 8), {}, TypeError, r"shape: expected an integer; got 6\.0"),
        (((4, 6), 8), {"stop": "exakt"}, ValueError, r"stop: expected one of closest, exact, first; got 'exakt'"),
        (((4, 6), 8), {"start": "haar"}, ValueError, r"start: expected one of identity, permuted; got 'haar'"),
        (((4, 6), 8), {"backend": "c"}, ValueError, r"backend: expected one of auto, kernel, python; got 'c'"),
        (((4, 6), 8), {"rows": (0, 5)}, ValueError, r"rows: expected 0 <= first <= last <= 4; got \(0, 5\)"),
        (((4, 6), 8), {"rows": (3, 2)}, ValueError, r"rows: .*got \(3, 2\)"),
        (((4, 6), 8), {"rows": (-1, 2)}, ValueError, r"rows: .*got \(-1, 2\)"),
        (((4, 6), 8), {"rows": 2}, ValueError, r"rows: expected a pair"),
        (((4, 6), 8), {"angle": math.pi / 2}, ValueError, r"angle: a multiple of pi/2"),
        (((4, 6), 8), {"angle": 0}, ValueError, r"angle: a multiple of pi/2"),
        (((4, 6), 8), {"angle": -3 * math.pi}, ValueError, r"angle: a multiple of pi/2"),
        (((4, 6), 8), {"angle": math.nan}, ValueError, r"angle: expected a finite number"),
        (((4, 6), 8), {"angle": "0.3"}, TypeError, r"angle: expected a number of radians"),
        (((4, 6), 8), {"threads": 0}, ValueError, r"threads: expected an integer of at least 1; got 0"),
        (((4, 6), 8), {"dtype": torch.int64}, TypeError, r"dtype: expected one of .*got torch\.int64"),
    ],
)
def test_bad_input_is_named(arguments, options, error, message):
    for sampler in (givens.sample, givens.sample_csr, lambda *a, **o: givens.sample_batch(2, *a, **o)):
        with pytest.raises(error, match=message):
            sampler(*arguments, **options)


def test_bad_batches_and_rotations_are_named():
    with pytest.raises(ValueError, match="batch: expected an integer of at least 0; got -1"):
        givens.sample_batch(-1, (4, 6), 8)
    with pytest.raises(ValueError, match="count: expected one integer or 3 of them"):
        givens.sample_batch(3, (4, 6), [8, 8])
    with pytest.raises(ValueError, match="rotations: expected an integer of at least 0; got -1"):
        givens.rotate((4, 6), -1)
    with pytest.raises(TypeError, match="stop: the number of rotations is given"):
        givens.rotate((4, 6), 3, stop="first")


def test_a_missing_kernel_is_replaced_only_where_the_user_left_the_choice(monkeypatch):
    expected = givens.sample((9, 9), 30, generator=seeded(), backend="python")
    monkeypatch.setattr(sampling, "has_kernel", lambda: False)
    assert torch.equal(givens.sample((9, 9), 30, generator=seeded(), backend="auto")[0], expected[0])
    with pytest.raises(ValueError, match="backend: the compiled kernel is not built; install a C"):
        givens.sample((9, 9), 30, backend="kernel")


# --- Fewer entries than an orthogonal matrix has ----------------------------------------------------------------------


@pytest.mark.parametrize("start", ["identity", "permuted"])
@pytest.mark.parametrize("shape", [(7, 12), (12, 7), (7, 7)])
def test_partial_isometries_have_as_many_unit_singular_values_as_entries(shape, start):
    for count in range(8):
        values, mask = givens.partial(shape, count, start=start, generator=seeded(count))
        singular = torch.linalg.svdvals(values)
        assert int(mask.sum()) == count
        assert torch.allclose(singular, torch.tensor([1.0] * count + [0.0] * (7 - count), dtype=torch.float64))
    if start == "identity":
        assert torch.equal(values, torch.eye(*shape, dtype=torch.float64))


def test_partial_isometries_choose_their_rows_uniformly():
    masks = torch.stack([givens.partial((6, 4), 1, generator=seeded(seed))[1] for seed in range(1200)])
    times = masks.sum(0).diagonal()
    assert int(times.sum()) == 1200
    assert float((times - 300).abs().max()) < 4 * math.sqrt(1200 * 3 / 16)


def test_partial_refuses_more_entries_than_fit_one_to_a_row_and_column():
    with pytest.raises(ValueError, match="count: expected at most 4"):
        givens.partial((6, 4), 5)


# --- Observation 1 ---------------------------------------------------------------------------------------------------


def test_expected_densities_worked_by_hand():
    # Three columns: the row's one entry spreads with probability 2/3, two spread to the third with probability 2/3.
    assert givens.expected_density(3, 2).tolist() == pytest.approx([1 / 3, 5 / 9, 7 / 9], abs=1e-15)
    assert givens.expected_density(1, 3).tolist() == [1.0] * 4


def test_expected_density_is_the_recurrence_of_the_paper():
    n, rotations = 17, 90
    p = [0.0, 1.0] + [0.0] * (n - 1)
    for t in range(rotations + 1):
        density = sum(k * p[k] for k in range(n + 1)) / n
        assert float(givens.expected_density(n, rotations)[t]) == pytest.approx(density, rel=1e-13)
        stay = [(math.comb(k, 2) + math.comb(n - k, 2)) / math.comb(n, 2) for k in range(n + 1)]
        p = [0.0] + [p[k] * stay[k] + p[k - 1] * (k - 1) * (n - k + 1) / math.comb(n, 2) for k in range(1, n + 1)]


def test_expected_rotations_to_one_sixteenth():
    sizes = (32, 64, 128, 256, 512, 1024)
    assert [givens.expected_rotations(n, n, 0.0625) for n in sizes] == [12, 47, 139, 369, 917, 2191]
    assert givens.expected_rotations(10, 10, 0.0) == givens.expected_rotations(10, 10, 0.1) == 0
    assert givens.expected_rotations(20, 300, 0.3) == givens.expected_rotations(300, 20, 0.3)
    assert givens.expected_rotations(1, 1, 1.0) == 0
    assert givens.expected_density(64, givens.expected_rotations(64, 64, 1.0))[-1] > 1 - 1 / 64**2


@pytest.mark.parametrize("shape", [(100, 100), (100, 30)])
def test_measured_densities_follow_observation_1(shape):
    runs = torch.stack([givens.counts_after(shape, 1000, generator=seeded(seed)) for seed in range(200)])
    densities = runs.double() / (shape[0] * shape[1])
    error = densities.std(0) / math.sqrt(len(runs))
    off = (densities.mean(0) - givens.expected_density(100, 1000)).abs()
    assert float((off <= 3 * error + 1e-12).double().mean()) >= 0.95


@pytest.mark.parametrize(("shape", "count"), [((256, 256), 8192), ((64, 512), 4096)])
def test_rotations_needed_are_those_expected(shape, count):
    expected = givens.expected_rotations(*shape, count / (shape[0] * shape[1]))
    needed = []
    for seed in range(10):
        path = givens.counts_after(shape, 2 * expected, generator=seeded(seed))
        needed.append(int((path < count).sum()))
    assert sum(needed) / 10 == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: givens.expected_density(0, 3), "size: expected an integer of at least 1"),
        (lambda: givens.expected_density(3, -1), "rotations: expected an integer of at least 0"),
        (lambda: givens.expected_rotations(3, 3, 1.5), "density: expected a number in"),
    ],
)
def test_bad_expectations_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("backend", ["auto", "python"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (40, 40)])
@pytest.mark.parametrize("by_rows", [True, False])
def test_values_written_into_a_matrix_are_those_that_are_returned_without_one(backend, dtype, shape, by_rows):
    options = {"dtype": dtype, "backend": backend, "start": "permuted"}
    expected, active = givens.sample(shape, 300, generator=torch.Generator().manual_seed(3), **options)
    out = torch.full(shape, 7.0, dtype=dtype) if by_rows else torch.full(shape[::-1], 7.0, dtype=dtype).T
    values, mask = givens.sample(shape, 300, generator=torch.Generator().manual_seed(3), out=out, **options)
    assert values.data_ptr() == out.data_ptr()
    assert torch.equal(out, expected)
    assert torch.equal(mask, active)


@pytest.mark.parametrize(
    "out",
    [
        torch.empty(50, 30),
        torch.empty(30, 100)[:, ::2],
        torch.empty(30, 50, dtype=torch.bfloat16),
        torch.empty(30, 50, dtype=torch.float32),
    ],
    ids=["shape", "strides", "half", "dtype"],
)
def test_a_matrix_that_cannot_hold_the_values_is_refused(out):
    with pytest.raises(ValueError, match=r"out: expected a plain torch\.float64 matrix"):
        givens.sample((30, 50), 300, out=out, dtype=torch.float64)
