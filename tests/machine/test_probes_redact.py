"""Facts for strangers: nothing that names a person, a machine or a card; all that a diagnosis needs."""

from __future__ import annotations

import sys

import pytest

from flatout.base import records
from flatout.machine.gather import gather
from flatout.machine.machine_facts import Application, Cuda, Driver, Facts, Gpu, GpuProcess, Interpreter, Library, Torch, Xid
from flatout.machine.redact import own_names, redact

UUID = "GPU-8a5612ab-1111-2222-3333-444455556666"
OTHER = "GPU-9b5612ab-1111-2222-3333-444455556666"


def private():
    cards = [
        Gpu(
            index=0,
            name="NVIDIA H200",
            uuid=UUID,
            pci_bus_id="00000000:00:06.0",
            mig_devices=["MIG-aaaaaaaa-1111-2222-3333-444455556666"],
            processes=[GpuProcess(pid=3, name="python3.12", memory_bytes=3), GpuProcess(pid=4, name="alphasecret")],
        ),
        Gpu(index=1, name="NVIDIA H200", uuid=OTHER),
    ]
    site = "lib/python3.11/site-packages"
    return Facts(
        python=Interpreter(path="/home/alice/secretproject/.venv/bin/python3", version="3.11.7", environment="venv"),
        driver=Driver(
            gpus=cards,
            xids=[
                Xid(
                    number=79,
                    pci="0000:01:00",
                    text="pid=12, name=alphasecret, GPU has fallen off the bus. Serial number 1234567",
                )
            ],
            device_nodes=["/dev/nvidia0"],
            smi_message="Failed to initialize NVML: Driver/library version mismatch",
        ),
        cuda=Cuda(
            loaded=[
                Library(name="cudnn", path=f"/home/alice/miniconda3/envs/secretproject/{site}/nvidia/cudnn/lib/libcudnn.so.9"),
                Library(name="cudnn", path="/usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0", version="10.14.0.64"),
                Library(name="cuda", path="/usr/lib/wsl/lib/libcuda.so.1"),
                Library(
                    name="cudnn",
                    path="C:\\Users\\Alice Smith\\secretproject\\.venv\\Lib\\site-packages\\torch\\lib\\cudnn64_9.dll",
                ),
            ]
        ),
        torch=Torch(
            version="2.7.0+cu128",
            path=f"/data/alice/secretproject/.venv/{site}/torch/__init__.py",
            others=["2.4.1 in /home/alice/secretproject/.venv", "2.7.0 in /home/alice/second/.venv"],
            error='OSError: [WinError 126] Error loading "C:\\Users\\Alice Smith\\torch\\lib\\fbgemm.dll" or one of its own.',
            warnings=[
                "alice@corp.example on bighost 192.168.1.17: /home/alice/secretproject/train.py:3, https://pytorch.org/get-started"
            ],
            kernel="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        ),
        application=Application(
            environment={
                "CUDA_VISIBLE_DEVICES": "GPU-8a56",
                "NVIDIA_VISIBLE_DEVICES": f"{UUID},{OTHER}",
                "LD_LIBRARY_PATH": "/home/alice/cuda-11.8/lib64:/usr/local/cuda/lib64",
                "CUDA_HOME": "/usr/local/cuda",
                "VIRTUAL_ENV": "/home/alice/secretproject/.venv",
                "OMP_NUM_THREADS": "4",
            }
        ),
    )


@pytest.fixture
def clean():
    return redact(private(), ["alice", "bighost"])


def test_nothing_private_is_left(clean):
    text = records.encode(clean).decode().lower()
    for word in (
        "alice",
        "smith",
        "secretproject",
        "bighost",
        "corp.example",
        "192.168",
        "1234567",
        "alphasecret",
        "8a5612ab",
        "444455556666",
    ):
        assert word not in text, word


def test_what_a_diagnosis_needs_is_left(clean):
    assert (clean.python.path, clean.python.environment, clean.python.version) == ("python3", "venv", "3.11.7")
    assert [library.path for library in clean.cuda.loaded] == [
        "/home/folder1/miniconda3/envs/folder2/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "C:\\Users\\folder3\\folder2\\.venv\\Lib\\site-packages\\torch\\lib\\cudnn64_9.dll",
    ]
    assert clean.cuda.loaded[1].version == "10.14.0.64"
    assert clean.torch.others == ["2.4.1 in /home/folder1/folder2/.venv", "2.7.0 in /home/folder1/folder6/.venv"]
    assert "fbgemm.dll" in clean.torch.error
    assert "https://pytorch.org/get-started" in clean.torch.warnings[0]
    assert clean.torch.kernel == private().torch.kernel
    assert (clean.driver.smi_message, clean.driver.device_nodes) == (private().driver.smi_message, ["/dev/nvidia0"])
    assert "GPU has fallen off the bus." in clean.driver.xids[0].text


def test_uuids_still_meet(clean):
    first, second = clean.driver.gpus
    assert first.uuid == "GPU-00000000-0000-0000-0000-000000000000"
    assert second.uuid == "GPU-00000002-0000-0000-0000-000000000000"
    assert first.mig_devices == ["MIG-00000001-0000-0000-0000-000000000000"]
    assert clean.application.environment["NVIDIA_VISIBLE_DEVICES"] == f"{first.uuid},{second.uuid}"
    assert first.uuid.startswith(clean.application.environment["CUDA_VISIBLE_DEVICES"])


def test_variables(clean):
    found = clean.application.environment
    assert (found["VIRTUAL_ENV"], found["CUDA_HOME"], found["OMP_NUM_THREADS"]) == ("(set)", "/usr/local/cuda", "4")
    assert found["LD_LIBRARY_PATH"] == "/home/folder1/cuda-11.8/lib64:/usr/local/cuda/lib64"


def test_twice_is_once(clean):
    again = redact(clean, ["alice", "bighost"])
    assert again.driver == clean.driver
    assert again.application == clean.application


def test_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("USER", "somebody")
    assert "somebody" in own_names()
    found = redact(gather(sys.executable, ask_torch=False))
    assert found.python.path == sys.executable.replace("\\", "/").rsplit("/", 1)[-1]
    assert records.decode(records.encode(found), Facts) == found


def test_a_common_name_does_not_eat_the_facts():
    facts = Facts(torch=Torch(error="ImportError: torch needs cuda of user root"))
    assert redact(facts, ["torch", "root", "user", "cu"]).torch.error == facts.torch.error
