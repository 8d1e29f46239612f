"""A Hugging Face language model under Trainer, with RigL as a callback."""

import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import orthosparse


class Rewire(TrainerCallback):
    """Steps a Rewirer after every optimizer step."""

    def on_train_begin(self, args, state, control, *, model, optimizer, **others):
        self.rewirer = orthosparse.Rewirer(model, optimizer, every=10, steps=state.max_steps)
        self.rewirer.load_state_dict({**self.rewirer.state_dict(), "taken": state.global_step})  # when a run is resumed

    def on_optimizer_step(self, args, state, control, **others):
        self.rewirer.step()


class Counting(torch.utils.data.Dataset):
    """Sequences that count up, so that the next word can be learned."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = (index + torch.arange(16)) % 64
        return {"input_ids": words, "labels": words}


def main(out: str = "runs/hugging_face", steps: int = 100) -> tuple[GPT2LMHeadModel, Trainer]:
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=64, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    report = orthosparse.sparsify(model, density=0.2, generator=torch.Generator().manual_seed(0))
    print(report)  # query, key and value in c_attn are three matrices; the tied head stays with its embedding

    arguments = TrainingArguments(
        out, max_steps=steps, per_device_train_batch_size=16, learning_rate=3e-3, logging_steps=20,
        save_steps=steps, report_to=[], use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=Counting(), callbacks=[Rewire()])
    trainer.train()

    fresh = GPT2LMHeadModel(model.config)
    saved = load_file(f"{out}/checkpoint-{steps}/model.safetensors")  # weights and masks
    orthosparse.load_sparse(fresh, saved)
    return fresh, trainer


if __name__ == "__main__":
    main()
