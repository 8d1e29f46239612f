import torch
from torch import nn

from orthosparse import isometry
from orthosparse.lab.inspection.head import Head
from orthosparse.lab.inspection.inputs import random_tokens
from orthosparse.lab.inspection.measures import Effort, inspect_model
from orthosparse.lab.inspection.starts import Plan
from orthosparse.lab.inspection.tokens import FromEmbeddings, embedding_of


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions, self.words = nn.Embedding(6, 8), nn.Embedding(11, 8)
        self.body = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh())
        self.head = nn.Linear(8, 11, bias=False)

    def forward(self, x):
        return self.head(self.body(self.words(x) + self.positions(torch.arange(x.shape[1]))))


def test_the_embedding_of_the_tokens_is_told_from_that_of_the_positions():
    model = Language().train()
    assert embedding_of(model, (6,)) == "words"
    assert model.training


def test_from_its_embeddings_on_a_model_is_the_same_function(generator):
    model, tokens = Language(), torch.randint(11, (3, 6), generator=generator)
    behind = FromEmbeddings(model, "words", tokens)
    torch.testing.assert_close(behind(behind.embedded()), model(tokens))
    moved = behind.embedded()[:2] + 1
    torch.testing.assert_close(behind(moved), model.head(model.body(moved + model.positions(torch.arange(6)))))
    torch.testing.assert_close(model(tokens), behind(behind.embedded()))  # no hook is left behind


def test_the_jacobian_of_a_model_of_tokens_starts_at_its_embeddings(generator):
    model = Language()
    inputs = random_tokens((6,), 11, 11, 3, embedding="words", sides=(6,), generator=generator)
    plan, effort = Plan(density=0.5, kind="default", exclude=("head",)), Effort(samples=1)
    dense, _, asked = inspect_model(model, plan, inputs, head=Head(axis=-1), effort=effort)
    h = model.words(inputs.x[:1]) + model.positions(torch.arange(6))
    jacobian = torch.func.jacrev(lambda h: model.head(model.body(h)))(h).reshape(66, 48)
    torch.testing.assert_close(dense.spectrum.values[0], torch.linalg.svdvals(jacobian.detach()), atol=1e-5, rtol=1e-4)
    assert set(asked.orthogonality) == set(asked.effective.layers) == {"body.0", "head"}
    assert asked.orthogonality["body.0"].score < 1e-5
    assert all(norm > 0 for norm in asked.flow.norms.values())
    assert isinstance(asked.effective, isometry.EffectiveDensity)
