import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import orthosparse
from contracts.ranks import on_two_ranks, same_on_all
from contracts.states import assert_same, state_of
from orthosparse import isometry, masking
from orthosparse.dynamic._criteria import cosine, drop_smallest, grow_largest

GROW = ("gradient", "random", "momentum")


def make(seed=0):
    g = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.1)
    orthosparse.sparsify(model, 0.2, scheme="base", generator=g)
    return model


def batch(step=0):
    g = torch.Generator().manual_seed(100 + step)
    return torch.randn(6, 3, 8, 8, generator=g), torch.randint(10, (6,), generator=g)


def train(model, optimizer, rewirer, steps, start=0):
    for step in range(start, start + steps):
        x, y = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        rewirer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


@pytest.mark.parametrize("grow", GROW)
@pytest.mark.parametrize("optimizer", [sgd, lambda m: torch.optim.Adam(m.parameters(), lr=0.01, amsgrad=True)])
def test_every_layer_keeps_its_count_and_weights_off_the_mask_are_zero(grow, optimizer, generator):
    model = make()
    before = orthosparse.masks_of(model)
    optimizer = optimizer(model)
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=2, steps=20, generator=generator)
    train(model, optimizer, rewirer, 9)
    after = orthosparse.masks_of(model)
    assert rewirer.updates == 4
    for name, mask in after.items():
        assert int(mask.sum()) == int(before[name].sum())
        assert not torch.equal(mask, before[name])
        assert bool((masking.masked_layers(model)[name].original[~mask] == 0).all())


def test_rigl_drops_the_smallest_and_grows_where_the_dense_gradient_is_largest():
    """Against gradients of a plain copy of the model, whose weights are the masked ones."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rewirer = orthosparse.Rewirer(model, optimizer, every=1, fraction=0.3, steps=10**6, until=1.0)
    plain = copy.deepcopy(model)
    orthosparse.bake(plain)
    x, y = batch()
    F.cross_entropy(plain(x), y).backward()
    masks = orthosparse.masks_of(model)
    train(model, optimizer, rewirer, 1)
    for name, after in orthosparse.masks_of(model).items():
        weight, gradient = plain.get_submodule(name).weight.detach(), plain.get_submodule(name).weight.grad
        number = round(0.3 * int(masks[name].sum()))  # the cosine has hardly begun
        order = sorted(
            masks[name].flatten().nonzero().flatten().tolist(), key=lambda i: abs(float(weight.flatten()[i]))
        )
        kept = set(order[number:])
        others = [i for i in range(weight.numel()) if i not in kept]
        grown = sorted(others, key=lambda i: -abs(float(gradient.flatten()[i])))[:number]
        assert set(after.flatten().nonzero().flatten().tolist()) == kept | set(grown)


@pytest.mark.parametrize("grow", GROW)
def test_new_weights_start_at_zero_and_the_optimizer_forgets_what_moved(grow, generator):
    model = make()
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=4, steps=40, generator=generator)
    train(model, optimizer, rewirer, 3)
    before = orthosparse.masks_of(model)
    train(model, optimizer, rewirer, 1, start=3)
    for name, after in orthosparse.masks_of(model).items():
        parameter = masking.masked_layers(model)[name].original
        momentum = optimizer.state[parameter]["momentum_buffer"]
        moved = before[name] != after
        assert rewirer.moved[name] == int((after & ~before[name]).sum()) > 0
        assert bool((parameter[moved] == 0).all())
        assert bool((momentum[moved] == 0).all())
        assert bool((momentum[after & before[name]] != 0).any())


def test_dense_gradients_are_gathered_on_update_steps_alone():
    model = make()
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(model, optimizer, every=3, steps=12, until=0.75)
    seen = []
    for step in range(12):
        seen.append((rewirer.due, rewirer._gradients.listening))
        train(model, optimizer, rewirer, 1, start=step)
    assert [due for due, _ in seen] == [step in (2, 5) for step in range(12)]
    assert all(due == listening for due, listening in seen)
    assert rewirer.updates == 2


def test_every_update_but_those_from_the_rest_on_counts_and_moves_its_share():
    """``t < T_end``, as in RigL's algorithm 1: on ``T_end`` itself the cosine is zero and nothing would move."""
    model = make()
    active = {name: int(mask.sum()) for name, mask in orthosparse.masks_of(model).items()}
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(
        model, optimizer, grow="random", every=2, fraction=0.4, steps=16, until=0.5, generator=torch.Generator()
    )
    moved = []
    for step in range(16):
        updates, masks = rewirer.updates, orthosparse.masks_of(model)
        train(model, optimizer, rewirer, 1, start=step)
        after = orthosparse.masks_of(model)
        if rewirer.updates > updates:
            moved.append(step + 1)
            for name, count in active.items():
                # Entries dropped in an update may be grown again in the same one.
                assert 0 < rewirer.moved[name] <= round(cosine(0.4, step + 1, 8) * count)
        else:
            assert_same(masks, after)
    assert moved == [2, 4, 6]


def test_the_rest_begins_where_the_decimals_say():
    model = make()
    rewirer = orthosparse.Rewirer(model, sgd(model), every=55, steps=100, until=0.55)
    assert 0.55 * 100 > 55
    rewirer.load_state_dict({**rewirer.state_dict(), "taken": 54})
    assert not rewirer.due


def test_gradients_of_micro_batches_add_up():
    whole, parts = make(), make()
    for model, pieces in ((whole, 1), (parts, 3)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        rewirer = orthosparse.Rewirer(model, optimizer, every=1, steps=100)
        x, y = batch()
        for xs, ys in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
            F.cross_entropy(model(xs), ys).div(pieces).backward()
        optimizer.step()
        rewirer.step()
    assert_same(orthosparse.masks_of(parts), orthosparse.masks_of(whole))


def test_a_weight_that_the_model_reads_itself_moves_alike_in_either_form():
    class Reading(nn.Sequential):
        def forward(self, x):
            y = F.linear(x, self[0].weight, self[0].bias).tanh().unflatten(1, (8, 8))
            return F.conv1d(y, self[1].weight, self[1].bias, padding=1).sum()

    moved = []
    for exchange in (lambda _: None, orthosparse.compact):
        model = Reading(nn.Linear(20, 64), nn.Conv1d(8, 6, 3))
        orthosparse.sparsify(model, 0.2, seed=0)
        exchange(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rewirer = orthosparse.Rewirer(model, optimizer, every=1, steps=10)
        model(torch.linspace(-1, 1, 60).view(3, 20)).backward()
        optimizer.step()
        rewirer.step()
        moved.append((rewirer.moved, orthosparse.masks_of(model)))
    (masked, masks), (compact, others) = moved
    assert masked == compact
    assert all(masked[name] and torch.equal(masks[name], others[name]) for name in ("0", "1"))


def test_a_pass_through_a_frozen_model_is_not_gathered():
    moves = []
    for through in (False, True):
        model = make()
        rewirer = orthosparse.Rewirer(model, sgd(model), every=1, steps=10)
        if through:  # as a generator trains through a discriminator
            model.requires_grad_(False)
            model(batch(7)[0].requires_grad_()).square().sum().backward()
            model.requires_grad_(True)
        train(model, rewirer.optimizer, rewirer, 1)
        moves.append(orthosparse.masks_of(model))
    assert_same(moves[1], moves[0])


MEASURES = {
    "singular_values": lambda model, x, y: isometry.singular_values(model, x),
    "matrix_free": lambda model, x, y: isometry.singular_values(model, x, method="matrix_free"),
    "gradient_flow": lambda model, x, y: isometry.gradient_flow(model, None, (x, y)),
    "effective_density": lambda model, x, y: isometry.effective_density(model, x),
    "orthogonality_score": lambda model, x, y: isometry.orthogonality_score(model, x),
    **{
        name: lambda model, x, y, score=score: score(model, 0.1, batch=(x, y))
        for name, score in orthosparse.DISTRIBUTIONS.items()
    },
}


@pytest.mark.parametrize("measure", MEASURES)
def test_what_measures_a_model_between_the_passes_of_a_step_does_not_count_for_the_moves(measure):
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(6, 12, generator=g), torch.randint(4, (6,), generator=g)
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4))
    orthosparse.sparsify(model, 0.3, generator=torch.Generator().manual_seed(0))
    masks = []
    for measured in (False, True):
        own = copy.deepcopy(model)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        rewirer = orthosparse.Rewirer(own, optimizer, every=1, steps=20)
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(own(x), y)
            if measured:
                MEASURES[measure](own, x, y)
            loss.backward()
            optimizer.step()
            rewirer.step()
        masks.append(orthosparse.masks_of(own))
    assert_same(masks[1], masks[0])


@pytest.mark.parametrize("grow", GROW)
def test_a_resumed_run_makes_the_same_moves(grow):
    straight = make()
    optimizer = sgd(straight)
    rewirer = orthosparse.Rewirer(
        straight, optimizer, grow=grow, every=2, steps=20, generator=torch.Generator().manual_seed(3)
    )
    train(straight, optimizer, rewirer, 3)
    saved = copy.deepcopy((straight.state_dict(), optimizer.state_dict(), rewirer.state_dict()))
    train(straight, optimizer, rewirer, 6, start=3)
    resumed = make(seed=9)
    resumed.load_state_dict(saved[0])
    optimizer = sgd(resumed)
    optimizer.load_state_dict(saved[1])
    rewirer = orthosparse.Rewirer(
        resumed, optimizer, grow=grow, every=2, steps=20, generator=torch.Generator().manual_seed(4)
    )
    rewirer.load_state_dict(saved[2])
    train(resumed, optimizer, rewirer, 6, start=3)
    assert_same(resumed.state_dict(), straight.state_dict())


@pytest.mark.parametrize("steps", [1, 2])  # an update is next, or not
def test_a_copy_of_model_optimizer_and_rewirer_makes_the_same_moves(steps):
    model = make()
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(model, optimizer, every=2, steps=20)
    train(model, optimizer, rewirer, steps)
    copied = copy.deepcopy((model, optimizer, rewirer))
    train(model, optimizer, rewirer, 4, start=steps)
    train(*copied, 4, start=steps)
    assert rewirer.updates == copied[2].updates
    assert_same(copied[0].state_dict(), model.state_dict())


def test_without_a_backward_pass_the_layer_is_named():
    model = make()
    rewirer = orthosparse.Rewirer(model, sgd(model), every=1, steps=10)
    with pytest.raises(RuntimeError, match="layer '0' has no gradient"):
        rewirer.step()


def test_a_step_between_the_passes_is_told_from_one_without_a_backward_pass():
    model = make()
    rewirer = orthosparse.Rewirer(model, sgd(model), every=2, steps=10)
    loss = F.cross_entropy(model(batch()[0]), batch()[1])
    rewirer.step()
    loss.backward()
    with pytest.raises(RuntimeError, match="a forward and a backward pass, both since the last step; layer '0' has no"):
        rewirer.step()


class TwoHeads(nn.Module):
    """Each step trains one of the heads."""

    def __init__(self):
        super().__init__()
        self.body, self.heads = nn.Linear(12, 16), nn.ModuleList([nn.Linear(16, 6), nn.Linear(16, 6)])

    def forward(self, x, task):
        return self.heads[task](self.body(x).tanh())


def two_heads():
    model = TwoHeads()
    orthosparse.sparsify(model, 0.4, seed=0)
    return model


@pytest.mark.parametrize("grow", ["gradient", "momentum"])
def test_a_layer_that_the_step_did_not_use_keeps_its_mask_at_that_update(grow):
    model = two_heads()
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=1, steps=20)
    for task in (0, 1):
        before = orthosparse.masks_of(model)
        optimizer.zero_grad()
        model(torch.randn(8, 12, generator=torch.Generator().manual_seed(task)), task).square().sum().backward()
        optimizer.step()
        rewirer.step()
        moved = {name for name, mask in orthosparse.masks_of(model).items() if not torch.equal(mask, before[name])}
        assert moved == {"body", f"heads.{task}"}
        assert {name for name, number in rewirer.moved.items() if number} == moved
    assert rewirer.updates == 2


def one_head_on_each_rank(rank):
    model = two_heads()
    rewirer = orthosparse.Rewirer(model, sgd(model), every=1, steps=20)
    model(torch.randn(8, 12, generator=torch.Generator().manual_seed(rank)), rank).square().sum().backward()
    rewirer.step()
    for mask in orthosparse.masks_of(model).values():
        both = [torch.empty_like(mask) for _ in range(2)]
        dist.all_gather(both, mask)
        assert torch.equal(*both)
    assert all(rewirer.moved.values())
    assert len(rewirer.moved) == 3


def test_a_layer_that_one_rank_alone_went_through_moves_on_all(tmp_path):
    on_two_ranks(one_head_on_each_rank, tmp_path)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"grow": "rigl"}, ValueError, "grow: expected one of gradient, momentum, random; got 'rigl'"),
        ({"every": 0}, ValueError, "every: expected an integer of at least 1; got 0"),
        ({"steps": 1.5}, TypeError, "steps: expected an integer; got 1.5"),
        ({"fraction": 2.0}, ValueError, r"fraction: expected a number in \[0, 1\]"),
        ({"until": float("nan")}, ValueError, r"until: expected a number in \[0, 1\]"),
    ],
)
def test_bad_arguments_are_named(wrong, error, message):
    model = make()
    with pytest.raises(error, match=message):
        orthosparse.Rewirer(model, sgd(model), **{"steps": 10, **wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fraction": "a"}, r"fraction: expected a number in \[0, 1\]; got 'a' \(str\)"),
        ({"fraction": True}, r"fraction: expected a number in \[0, 1\]; got True \(bool\)"),
        ({"until": None}, r"until: expected a number in \[0, 1\]; got None \(NoneType\)"),
    ],
)
def test_fractions_that_are_no_numbers_are_named(wrong, message):
    model = make()
    with pytest.raises(TypeError, match=message):
        orthosparse.Rewirer(model, sgd(model), **{"steps": 10, **wrong})


@pytest.mark.parametrize("optimizer", ["opt", None, torch.optim.SGD])
def test_an_optimizer_that_is_none_is_refused(optimizer):
    with pytest.raises(TypeError, match=r"optimizer: expected a torch\.optim\.Optimizer; got "):
        orthosparse.Rewirer(make(), optimizer, steps=10)


def test_the_optimizer_of_another_model_is_refused():
    with pytest.raises(
        ValueError, match="optimizer: expected the one that trains the model; it holds none of its mask"
    ):
        orthosparse.Rewirer(make(), sgd(make()), steps=10)


def test_an_optimizer_of_some_of_the_masked_layers_is_taken():
    model = make()
    optimizer = sgd(model[0])
    before = model.state_dict()["3.weight"].clone()
    rewirer = orthosparse.Rewirer(model, optimizer, every=1, steps=10)
    train(model, optimizer, rewirer, 1)
    assert [*rewirer.moved] == ["0"]
    assert torch.equal(model[3].weight, before)


@pytest.mark.parametrize("grow", GROW)
def test_frozen_layers_are_left_alone(grow, generator):
    model = make()
    optimizer = sgd(model)
    model[0].requires_grad_(False)
    frozen = state_of(model[0])
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=1, steps=20, generator=generator)
    train(model, optimizer, rewirer, 4)
    assert rewirer.updates == 4
    assert rewirer.moved.keys() == {"3"}
    assert_same(frozen, model[0].state_dict())
    model[0].requires_grad_(True)  # from now on it moves, too
    train(model, optimizer, rewirer, 2, start=4)
    assert rewirer.moved.keys() == {"0", "3"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"taken": "3"}, TypeError, "'taken': expected an integer"),
        ({"updates": -1}, ValueError, "'updates': expected an integer of at least 0"),
        ({"seed": 1.5}, TypeError, "'seed': expected an integer"),
        ({"momentum": None}, TypeError, "a mapping for 'momentum'"),
        ({"momentum": {"7": torch.ones(1)}}, ValueError, "momentum of layers among 0, 3; got '7'"),
        ({"momentum": {"3": torch.ones(1)}}, ValueError, r"shape \(10, 288\) for '3'"),
        ({"momentum": {"3": [1.0]}}, TypeError, "the momentum of '3'"),
        ({"moved_in_all": {"3": "x"}}, TypeError, "'moved_in_all': expected a mapping"),
        ({"moved_in_all": {"7": 3}}, ValueError, "moves of layers among 0, 3; got 7"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, error, message):
    model = make()
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(model, optimizer, grow="momentum", every=1, steps=20)
    train(model, optimizer, rewirer, 2)
    before = rewirer.state_dict()
    with pytest.raises(error, match=f"^state: .*{message}"):
        rewirer.load_state_dict({**before, "taken": 5, **change})
    for missing in before:
        with pytest.raises(ValueError, match=f"no '{missing}'"):
            rewirer.load_state_dict({key: value for key, value in before.items() if key != missing})
    with pytest.raises(TypeError, match=r"^state: expected a state dict"):
        rewirer.load_state_dict("rewirer.pt")
    after = rewirer.state_dict()
    assert after.keys() == before.keys()
    assert all(after[key] == before[key] for key in before if key != "momentum")
    assert_same(after["momentum"], before["momentum"])
    train(model, optimizer, rewirer, 1, start=2)
    assert rewirer.updates == 3


def test_a_refused_rewirer_leaves_the_model_without_listeners():
    model = make()
    with pytest.raises(ValueError, match="optimizer"):
        orthosparse.Rewirer(model, sgd(make()), every=1, steps=10)
    assert all(masked.holder.listener is None for masked in masking.masked_layers(model).values())


def test_a_model_without_masks_is_refused():
    model = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="this one has no masks"):
        orthosparse.Rewirer(model, sgd(model), steps=10)


def test_ties_go_to_the_first_entries():
    ones = torch.ones(4)
    assert drop_smallest(ones, torch.tensor([True, True, True, False]), 1).tolist() == [True, True, False, False]
    assert grow_largest(ones, torch.tensor([False, True, False, False]), 2).tolist() == [True, True, True, False]


def test_the_cosine_begins_at_the_fraction_and_ends_at_zero():
    assert cosine(0.4, 0, 75) == pytest.approx(0.4)
    assert cosine(0.4, 75, 75) == pytest.approx(0.0)


def _same_moves(rank, grow):
    model = make()
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(
        model, optimizer, grow=grow, every=1, steps=100, generator=torch.Generator().manual_seed(rank)
    )
    for step in range(3):
        x, y = batch(10 * step + rank)  # different data
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
        rewirer.step()
    for key, value in model.state_dict().items():
        assert same_on_all(value), key


@pytest.mark.parametrize("grow", ["gradient", "random"])
def test_all_ranks_make_the_same_moves(grow, tmp_path):
    on_two_ranks(_same_moves, tmp_path, grow)


def test_what_moved_is_told_by_layer_at_the_last_update_and_in_all(caplog):
    model = make()
    optimizer = sgd(model)
    rewirer = orthosparse.Rewirer(model, optimizer, grow="random", every=2, steps=20, seed=3)
    assert "0 updates, 0 weights moved at the last, 0 in all" in repr(rewirer)
    total = dict.fromkeys(rewirer.units, 0)
    with caplog.at_level("INFO", logger="orthosparse"):
        for number in range(6):
            before = orthosparse.masks_of(model)
            train(model, optimizer, rewirer, 1, start=number)
            after = orthosparse.masks_of(model)
            total = {name: total[name] + int((mask & ~before[name]).sum()) for name, mask in after.items()}
    assert rewirer.moved_in_all == total
    assert sum(total.values()) > sum(rewirer.moved.values()) > 0
    last, in_all = sum(rewirer.moved.values()), sum(total.values())
    assert repr(rewirer) == (
        "Rewirer(grow='random', every=2, fraction=0.5: step 6, masks stop moving at step 15; "
        f"3 updates, {last:,} weights moved at the last, {in_all:,} in all)"
    )
    assert caplog.messages[-1] == f"orthosparse: step 6: {last} active weights moved"
    resumed = orthosparse.Rewirer(model, optimizer, grow="random", every=2, steps=20)
    resumed.load_state_dict(rewirer.state_dict())
    assert resumed.moved_in_all == total
    assert resumed.seed == rewirer.seed == 3


@pytest.mark.parametrize(("every", "steps", "never"), [(800, 1000, True), (75, 100, True), (74, 100, False)])
def test_a_rewirer_that_will_never_move_says_so(every, steps, never, caplog):
    model = make()
    orthosparse.Rewirer(model, sgd(model), every=every, steps=steps)
    warned = [record.getMessage() for record in caplog.records]
    first = f"its first update would be step {every}, but the masks stop moving at step {0.75 * steps:g}"
    assert [first in message for message in warned] == [True] * never


@pytest.mark.parametrize("grow", ["gradient", "random"])
@pytest.mark.parametrize("exchange", [orthosparse.compact, orthosparse.expand, orthosparse.bake])
def test_layers_that_were_exchanged_are_not_moved_by_what_they_were(grow, exchange):
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    orthosparse.sparsify(model, 0.3, generator=torch.Generator().manual_seed(0))
    if exchange is orthosparse.expand:
        orthosparse.compact(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=2, steps=20)
    exchange(model, optimizer=optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 32)).sum().backward()
        optimizer.step()
        before = state_of(model)
        if not rewirer.due:
            rewirer.step()
    with pytest.raises(RuntimeError, match="'0' has been replaced"):
        rewirer.step()
    assert_same(before, model.state_dict())
    if exchange is orthosparse.bake:
        return
    other = orthosparse.Rewirer(model, optimizer, grow="random", every=2, steps=20)
    other.load_state_dict(rewirer.state_dict())
    other.step()
    assert other.updates == 1


def test_the_running_means_go_on_when_layers_are_exchanged():
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 6, 1), nn.Flatten(), nn.Linear(96, 5)).double()
    orthosparse.sparsify(model, 0.3, generator=torch.Generator().manual_seed(0))
    masks = []
    for exchanges in ((), (orthosparse.compact, orthosparse.expand)):
        own, state = copy.deepcopy(model), None
        optimizer = torch.optim.SGD(own.parameters(), lr=1e-3)
        for number, exchange in enumerate([None, *exchanges] if exchanges else [None] * 3):
            if exchange is not None:
                exchange(own, optimizer=optimizer)
            rewirer = orthosparse.Rewirer(own, optimizer, grow="momentum", every=1, steps=20)
            if state is not None:
                rewirer.load_state_dict(state)
            for step in range(2):
                optimizer.zero_grad()
                x = torch.randn(3, 4, 4, 4, generator=torch.Generator().manual_seed(10 * number + step)).double()
                own(x).square().sum().backward()
                optimizer.step()
                rewirer.step()
            state = rewirer.state_dict()
            assert rewirer.updates == 2 * number + 2
        masks.append(orthosparse.masks_of(own))
    assert_same(masks[1], masks[0])


@pytest.mark.parametrize("grow", GROW)
def test_of_two_rewirers_of_one_layer_the_older_says_so_at_its_next_step(grow):
    model = make()
    older, newer = (orthosparse.Rewirer(model, sgd(model), grow=grow, every=1, steps=10) for _ in range(2))
    F.cross_entropy(model(batch()[0]), batch()[1]).backward()
    before = state_of(model)
    with pytest.raises(RuntimeError, match="the only Rewirer of its layers; a newer one moves '0'"):
        older.step()
    assert (older.taken, older.updates) == (0, 0)
    assert_same(before, model.state_dict())
    newer.step()
    assert newer.updates == 1


@pytest.mark.parametrize("grow", GROW)
def test_a_rewirer_may_be_replaced_and_goes_on_when_its_successor_is_gone(grow):
    model = make()
    optimizer = sgd(model)
    older = orthosparse.Rewirer(model, optimizer, grow=grow, every=1, steps=10)
    newer = orthosparse.Rewirer(model, optimizer, grow=grow, every=1, steps=10)
    train(model, optimizer, newer, 2)
    assert newer.updates == 2
    del newer
    older.load_state_dict(older.state_dict())  # so that it listens again
    train(model, optimizer, older, 2)
    assert older.updates == 2


def test_a_rewirer_goes_on_when_its_successor_can_no_longer_be_reached():
    class Trainer:
        def __init__(self, model, optimizer):
            self.rewirer = orthosparse.Rewirer(model, optimizer, every=1, steps=10)
            self.rewirer.owner = self  # a cycle, which only the garbage collector finds

    model = make()
    optimizer = sgd(model)
    older = orthosparse.Rewirer(model, optimizer, every=1, steps=10)
    Trainer(model, optimizer)
    older.load_state_dict(older.state_dict())  # so that it listens again
    train(model, optimizer, older, 2)
    assert older.updates == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_state_that_was_loaded_to_the_cpu_goes_on_on_the_gpu():
    model = make().cuda()
    optimizer, (x, y) = sgd(model), (each.cuda() for each in batch())
    rewirer = orthosparse.Rewirer(model, optimizer, grow="momentum", every=1, steps=10)
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
        rewirer.step()
        state = rewirer.state_dict()
        rewirer.load_state_dict({**state, "momentum": {name: each.cpu() for name, each in state["momentum"].items()}})
    assert rewirer.updates == 2
