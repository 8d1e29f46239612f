"""Models of tokens: the embedding that reads them, and the model from there on, which has a Jacobian."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_NONE = "input: expected a model that gives its tokens to an nn.Embedding; found none that reads them"


def embedding_of(model: nn.Module, in_shape: Sequence[int]) -> str:
    """Return the name of the embedding that is given the model's tokens.

    Raises:
        ValueError: there is none, or the model does not take that many tokens.
    """
    probe = torch.arange(2 * torch.Size(in_shape).numel()).view(2, *in_shape) % 2  # positions count on, these do not
    read: list[str] = []

    def watch(name: str) -> Any:
        def seen(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            del module
            if (
                arguments
                and isinstance(arguments[0], Tensor)
                and torch.equal(arguments[0].reshape(-1), probe.flatten())
            ):
                read.append(name)

        return seen

    embeddings = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    if not embeddings:
        raise ValueError(_NONE)
    hooks = [module.register_forward_pre_hook(watch(name)) for name, module in embeddings.items()]
    was_training = model.training
    try:
        with torch.no_grad():
            model.eval()(probe)
    except (RuntimeError, IndexError) as error:
        raise ValueError(
            f"input: expected tokens that the model takes; got {tuple(in_shape)} of them: {error}"
        ) from error
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    if not read:
        raise ValueError(_NONE)
    return read[0]


class FromEmbeddings(nn.Module):
    """A model of tokens as a function of what its embedding returns for them."""

    def __init__(self, model: nn.Module, embedding: str, tokens: Tensor) -> None:
        super().__init__()
        self.model, self.embedding, self.tokens = model, embedding, tokens

    def embedded(self) -> Tensor:
        """Return what the embedding makes of the tokens."""
        with torch.no_grad():
            return self.model.get_submodule(self.embedding)(self.tokens)  # type: ignore[no-any-return]

    def forward(self, embedded: Tensor) -> Any:
        """Return what the model returns where the embedding returns `embedded`."""
        module = self.model.get_submodule(self.embedding)
        hook = module.register_forward_hook(lambda *_: embedded)
        try:
            return self.model(self.tokens[: len(embedded)])
        finally:
            hook.remove()
