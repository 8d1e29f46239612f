"""A LightningModule that is sparse from the start, its masks in the checkpoint."""

import pytorch_lightning as pl  # or: import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import orthosparse


class Classifier(pl.LightningModule):
    """A deep tanh network that could not train from masked dense weights."""

    def __init__(self, density: float = 0.125, depth: int = 20, lr: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters()
        layers = [layer for _ in range(depth) for layer in (nn.Linear(64, 64), nn.Tanh())]
        self.net = nn.Sequential(*layers, nn.Linear(64, 10))
        # Here, not in setup(): a checkpoint is loaded into what __init__ made, masks included.
        self.report = orthosparse.sparsify(self.net, density, generator=torch.Generator().manual_seed(0))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)


def main(out: str = "runs/lightning", steps: int = 300) -> tuple[Classifier, Classifier]:
    g = torch.Generator().manual_seed(1)
    y = torch.randint(10, (1024,), generator=g)
    x = torch.randn(10, 64, generator=g)[y] + 0.3 * torch.randn(1024, 64, generator=g)
    model = Classifier()
    print(model.report)
    data = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, generator=g)
    trainer = pl.Trainer(
        max_steps=steps, accelerator="auto", devices=1, default_root_dir=out, logger=False,
        enable_model_summary=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(model, data)
    trainer.save_checkpoint(f"{out}/last.ckpt")
    again = Classifier.load_from_checkpoint(f"{out}/last.ckpt")
    print(
        f"loss {float(trainer.callback_metrics['loss']):.3f}, {orthosparse.densities_of(orthosparse.masks_of(again))}"
    )
    return model, again


if __name__ == "__main__":
    main()
