"""A profile in the words of Lightning, Transformers and Accelerate, and their callbacks: with the real packages."""

from __future__ import annotations

import logging
import sys

import pytest

from flatout.api.adapters import accelerate_arguments, lightning_arguments, loader_arguments, transformers_arguments
from flatout.api.errors import ConfigurationError
from flatout.api.monitor import PerformanceMonitor
from flatout.api.refusals import ArgumentTypeError, UnknownNameError
from flatout.base.words import LANGUAGES
from flatout.knobs import profile_file
from flatout.knobs.catalogue import KNOBS
from flatout.knobs.profile import Fingerprint, Profile

torch = pytest.importorskip("torch")

WHOLE = {
    "precision": "bf16",
    "tf32": "on",
    "cudnn_benchmark": "on",
    "channels_last": "on",
    "fused_optimizer": "on",
    "compile": "reduce-overhead",
    "workers": "2",
    "persistent_workers": "on",
    "prefetch_factor": "4",
    "pin_memory": "on",
    "allocator": "expandable",
    "deferred_item": "on",
    "non_blocking": "on",
    "device_prefetch": "on",
    "cpu_threads": "2",
    "gc_policy": "on",
    "checkpointing": "on",
    "batch_size": "64",
}
EVERY = (loader_arguments, lightning_arguments, transformers_arguments, accelerate_arguments)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("say", EVERY)
def test_every_knob_is_said_or_left_out_with_a_reason(say):
    if say is accelerate_arguments:
        pytest.importorskip("accelerate", reason="some of its arguments are its own objects")
    assert set(WHOLE) == {knob.name for knob in KNOBS}
    for language in LANGUAGES:
        said = say(WHOLE, language=language)
        left = {one.knob: one for one in said.left_out}
        assert len(said) + len(left) >= len(WHOLE)
        for one in left.values():
            assert one.knob in one.reason
            assert not one.reason.startswith("adapter.")
    alone = [say({name: value}) for name, value in WHOLE.items() if name not in ("persistent_workers", "prefetch_factor")]
    assert all(bool(one) != bool(one.left_out) for one in alone)


def test_loader_arguments_make_a_loader(tmp_path):
    path = tmp_path / "flatout.toml"
    profile_file.write(path, Profile(knobs={"workers": "2", "prefetch_factor": "4", "pin_memory": "on", "batch_size": "4"}))
    said = loader_arguments(path)
    assert dict(said) == {"num_workers": 2, "prefetch_factor": 4, "pin_memory": True, "batch_size": 4}
    assert not said.left_out
    loader = torch.utils.data.DataLoader(torch.arange(8), **said)
    assert (loader.num_workers, loader.prefetch_factor, loader.batch_size) == (2, 4, 4)


def test_what_the_profile_leaves_alone_is_not_said():
    assert transformers_arguments({"precision": "no", "pin_memory": "off", "batch_size": "script"}) == {}
    assert lightning_arguments({"precision": "auto"}).left_out[0].code == "auto-without-gpu" or torch.cuda.is_available()


@pytest.mark.parametrize("say", [loader_arguments, lightning_arguments, transformers_arguments])
def test_a_profile_from_elsewhere_says_nothing_unless_it_is_trusted(tmp_path, say):
    path = tmp_path / "flatout.toml"
    knobs = {"precision": "bf16", "workers": "2", "pin_memory": "off"}
    profile_file.write(path, Profile(knobs=knobs, fingerprint=Fingerprint(torch="1.0.0", script="0" * 64)))
    said = say(path)
    assert dict(said) == {}
    assert {(one.knob, one.code) for one in said.left_out} == {
        (name, "measured-elsewhere") for name in ("precision", "workers")
    }
    assert all("1.0.0" in one.reason and torch.__version__ in one.reason for one in said.left_out)
    assert dict(say(path, trust_profile=True)) == dict(say(knobs)) != {}
    profile_file.write(path, Profile(knobs=knobs, fingerprint=Fingerprint(torch=str(torch.__version__), script="0" * 64)))
    assert dict(say(path)) == dict(say(knobs))


def test_what_is_no_profile():
    with pytest.raises(ArgumentTypeError, match="profile must be"):
        lightning_arguments(3)
    with pytest.raises(UnknownNameError, match="did you mean precision"):
        lightning_arguments({"precison": "bf16"})
    with pytest.raises(ConfigurationError, match="precision cannot be b16"):
        lightning_arguments({"precision": "b16"})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        lightning_arguments("nowhere.toml")


@pytest.fixture
def nobody(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)


def rows(count=10):
    return torch.utils.data.TensorDataset(torch.randn(count, 4), torch.randint(0, 2, (count,)))


@pytest.mark.filterwarnings("ignore")
def test_lightning(nobody, monkeypatch):
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # Lightning sets it when it is imported
    pl = pytest.importorskip("lightning.pytorch")
    from flatout.api.adapters.lightning import LightningMonitor

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 2)

        def training_step(self, batch, index):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    said = lightning_arguments({"precision": "bf16", "cudnn_benchmark": "on", "fused_optimizer": "on", "workers": 2})
    assert dict(said) == {"precision": "bf16-mixed", "benchmark": True}
    assert [one.knob for one in said.left_out] == ["fused_optimizer", "workers"]
    seen = LightningMonitor(PerformanceMonitor("cpu", every_s=0.0))
    trainer = pl.Trainer(
        **said, max_epochs=2, accelerator="cpu", callbacks=[seen], logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(rows(), batch_size=4))
    report = seen.monitor.report()
    assert trainer.precision == "bf16-mixed"
    assert (report.steps, report.samples) == (6, 20)  # of ten rows the last batch holds two
    assert len(report.losses) == 6
    assert not seen.monitor._running


@pytest.mark.filterwarnings("ignore")
def test_transformers(nobody, tmp_path):
    transformers = pytest.importorskip("transformers")
    from flatout.api.adapters.transformers import TransformersMonitor

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 2)

        def forward(self, x, labels):
            return {"loss": torch.nn.functional.cross_entropy(self.net(x), labels)}

    said = transformers_arguments(
        {"precision": "bf16", "fused_optimizer": "on", "workers": 0, "batch_size": 4, "channels_last": "on"}
    )
    assert dict(said) == {
        "bf16": True,
        "optim": "adamw_torch_fused",
        "dataloader_num_workers": 0,
        "per_device_train_batch_size": 4,
    }
    assert [one.knob for one in said.left_out] == ["channels_last"]
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        **said,
        num_train_epochs=2,
        logging_steps=1,
        save_strategy="no",
        eval_strategy="epoch",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    assert arguments.bf16
    seen = TransformersMonitor(PerformanceMonitor("cpu", every_s=0.0))
    data = [{"x": x, "labels": y} for x, y in rows(8)]
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data, eval_dataset=data, callbacks=[seen])
    trainer.pop_callback(transformers.PrinterCallback)
    trainer.train()
    report = seen.monitor.report()
    assert (report.steps, report.samples) == (4, 16)
    assert report.losses
    assert seen.monitor._paused_at is None
    for name in transformers_arguments(WHOLE):
        assert hasattr(arguments, name), name


@pytest.mark.filterwarnings("ignore")
def test_accelerate(nobody):
    accelerate = pytest.importorskip("accelerate")
    from flatout.api.adapters.accelerate import AccelerateMonitor

    said = accelerate_arguments({"precision": "bf16", "non_blocking": "on", "pin_memory": "on"})
    assert [one.knob for one in said.left_out] == ["pin_memory"]
    compiled = accelerate_arguments({"compile": "reduce-overhead"})
    assert compiled["dynamo_plugin"].mode == "reduce-overhead"
    seen = AccelerateMonitor(PerformanceMonitor("cpu", every_s=0.0))
    try:
        accelerator = accelerate.Accelerator(**said, cpu=True, log_with=seen)
        assert (accelerator.mixed_precision, accelerator.dataloader_config.non_blocking) == ("bf16", True)
        model = torch.nn.Linear(4, 2)
        model, optimizer, loader = accelerator.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(rows(), batch_size=4)
        )
        accelerator.init_trackers("x", config={"lr": 0.1})
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"samples": len(x), "loss": loss.detach()})
        accelerator.end_training()
        with pytest.raises(UnknownNameError, match="values needs the key samples"):
            seen.log({"loss": 1.0})
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    report = seen.monitor.report()
    assert (report.steps, report.samples) == (3, 10)
    assert not seen.monitor._running
