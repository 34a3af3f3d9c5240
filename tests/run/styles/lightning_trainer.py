"""Lightning: a LightningModule with validation, a scheduler and gradient accumulation; then a GAN, optimized manually."""

import logging
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning.pytorch as pl


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("valid_loss", nn.functional.cross_entropy(self.net(x), y))

    def on_validation_epoch_end(self):
        print(self.trainer.global_step, repr(self.trainer.callback_metrics.get("valid_loss")))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)]


class Gan(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(4, 8), nn.Linear(8, 1)

    def training_step(self, batch, index):
        optimizer_g, optimizer_c = self.optimizers()
        (real, _) = batch
        fake = self.generator(torch.randn(len(real), 4))
        for optimizer, loss_of in (
            (optimizer_c, lambda: self.critic(fake.detach()).mean() - self.critic(real).mean()),
            (optimizer_g, lambda: -self.critic(fake).mean()),
        ):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(loss_of())
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self):
        return torch.optim.SGD(self.generator.parameters(), lr=0.01), torch.optim.SGD(self.critic.parameters(), lr=0.01)


def loader(size, shuffle=False):
    return DataLoader(TensorDataset(torch.randn(size, 8), torch.randint(0, 2, (size,))), batch_size=4, shuffle=shuffle)


def fit(model, valid, accumulate):
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accumulate_grad_batches=accumulate,
    )
    trainer.fit(model, loader(46, shuffle=True), valid)
    name = type(model).__name__
    trainer.save_checkpoint(f"{name}.ckpt", weights_only=True)
    torch.save(model.state_dict(), f"{name}.pt")


def main():
    pl.seed_everything(1, verbose=False)
    fit(Classifier(), loader(16), accumulate=2)
    fit(Gan(), None, accumulate=1)


if __name__ == "__main__":
    main()
