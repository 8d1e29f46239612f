import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.lab.training.trees import copied, flatten, unflatten

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_a_tree_comes_back_through_json_as_it_was(tree):
    tensors, rest = flatten(tree)
    assert tensors == {}
    assert unflatten(tensors, json.loads(json.dumps(rest))) == tree


def test_an_optimizers_state_comes_back_with_its_tensors_and_integer_keys():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    tensors, rest = flatten(optimizer.state_dict())
    back = unflatten(tensors, json.loads(json.dumps(rest)))
    assert back["param_groups"] == optimizer.state_dict()["param_groups"]
    assert torch.equal(back["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def test_anything_else_is_refused_with_its_path():
    with pytest.raises(TypeError, match="model/hook"):
        flatten({"model": {"hook": print}})


def test_copies_share_no_memory():
    tree = {"x": torch.zeros(2)}
    copy = copied(tree)
    tree["x"].fill_(1)
    assert copy["x"].tolist() == [0, 0]


def test_copies_of_tied_tensors_are_apart():
    tied = torch.zeros(2)
    copy = copied({"a": tied, "b": tied})
    assert copy["a"].data_ptr() != copy["b"].data_ptr()
