"""Trainers of others under Landlock and the guard: what they write of checkpoints and logs they read again."""

import sys
from importlib.util import find_spec

import planted_home
import pytest
from test_ordinary_scripts import trial

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(sys.platform != "linux", reason="other systems have less")]

TRANSFORMERS = """
import os, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
data = [{"input_ids": torch.randint(0, 50, (8,)), "labels": torch.tensor(i % 2)} for i in range(16)]
asked = TrainingArguments(output_dir="out", max_steps=4, save_steps=2, save_total_limit=1, report_to=[], use_cpu=True)
trainer = Trainer(model=BertForSequenceClassification(config), args=asked, train_dataset=data)
trainer.train()
trainer.save_model("out/best")
BertForSequenceClassification.from_pretrained("out/best")
assert sorted(os.listdir("out")) == ["best", "checkpoint-4"]
trainer.train(resume_from_checkpoint=True)
"""

LIGHTNING = """
import lightning, os, torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        loss = self.net(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=8)
keep = ModelCheckpoint(dirpath="checkpoints", monitor="loss", save_top_k=1, save_last=True)
asked = dict(logger=CSVLogger("logs"), log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False)
lightning.Trainer(max_epochs=2, callbacks=[keep], **asked).fit(Net(), loader)
Net.load_from_checkpoint(keep.best_model_path)
assert "last.ckpt" in os.listdir("checkpoints")
assert os.path.getsize("logs/lightning_logs/version_0/metrics.csv")
"""


@pytest.mark.parametrize("kind", ["landlock", "guard"])
@pytest.mark.parametrize(("library", "script"), [("transformers", TRANSFORMERS), ("lightning", LIGHTNING)])
def test_trainers_find_what_they_wrote(tmp_path, kind, library, script):
    if find_spec(library) is None:  # not imported here: it would leave its traces
        pytest.skip(f"no {library}")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(script, encoding="ascii")
    before = planted_home.snapshot(project)
    told = trial(kind, project, "train.py", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert told["status"] == 0, told["output"][-3000:]
    assert planted_home.differences(before, planted_home.snapshot(project)) == []
    assert (told["changed"], told["made"], told["refused"]) == ([], [], None)
