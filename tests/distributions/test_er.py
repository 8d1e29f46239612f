import torch
from torch import nn

from orthosparse.distributions.er import er
from orthosparse.layers import find_layers
from orthosparse.masks import counts_of


def test_shares_worked_by_hand_with_a_full_layer():
    """10 x 20, 20 x 20, 20 x 3, and 180 of 660: ends of 30 : 40 : 23, where 23 of 93 is 44.5 of the last one's 60."""
    model = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 20), nn.Linear(20, 3))
    assert counts_of(er(model, 180 / 660)) == {"0": 58, "1": 77, "2": 45}
    # 400 of 660: 23/93 of 400 is 98.9 > 60, which fills the last; 340 are left, 30 : 40 -> 145.7 and 194.3.
    assert counts_of(er(model, 400 / 660)) == {"0": 146, "1": 194, "2": 60}


def test_a_kernel_does_not_change_the_density_of_its_layer():
    """Two convolutions of equal channels, 1 x 1 and 3 x 3: equal densities."""
    model = nn.Sequential(nn.Conv2d(10, 10, 1), nn.Conv2d(10, 10, 3))
    assert counts_of(er(model, 0.5)) == {"0": 50, "1": 450}


def test_fused_projections_count_as_the_matrices_in_them():
    fused = nn.MultiheadAttention(12, 2)
    separate = nn.MultiheadAttention(12, 2, kdim=12)
    separate._qkv_same_embed_dim = False  # as torch stores it when the sides differ
    del separate.in_proj_weight
    for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        setattr(separate, name, nn.Parameter(torch.zeros(12, 12)))
    one, three = counts_of(er(fused, 0.25)), counts_of(er(separate, 0.25))
    assert one["in_proj_weight"] == sum(count for name, count in three.items() if name != "out_proj") == 108


def test_gates_count_as_matrices():
    layers = find_layers(nn.LSTM(6, 4))
    assert [layer.parts for layer in layers.values()] == [(4,) * 4, (4,) * 4]
    # 4 x (4 + 4) = 32 to 4 x (6 + 4) = 40, and 72 of 160 weights
    assert counts_of(er(nn.LSTM(6, 4), 0.45)) == {"weight_hh_l0": 32, "weight_ih_l0": 40}


def test_a_split_convolution_counts_as_its_blocks_do_apart():
    whole = nn.Sequential(nn.Conv1d(8, 24, 1, bias=False), nn.Conv1d(24, 16, 3, bias=False))
    apart = nn.ModuleList([*(nn.Conv1d(8, 8, 1, bias=False) for _ in range(3)), nn.Conv1d(24, 16, 3, bias=False)])
    split = counts_of(er(whole, 0.2, layers=find_layers(whole, split={"0": 3})))
    counts = list(counts_of(er(apart, 0.2)).values())
    assert split["1"] == counts[3]
    assert split["0"] == sum(counts[:3])
