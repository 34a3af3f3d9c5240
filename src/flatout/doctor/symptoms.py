"""The codes of what people see and paste. The paste reader recognises them, rules ask for them; nothing else is said.

A symptom is evidence, not a cause: `cuda-error` 999 has five causes, and the rest of the facts decide between them.
"""

from __future__ import annotations

# code -> parameters it may carry
SYMPTOMS: dict[str, tuple[str, ...]] = {
    # CUDA, whoever reports it; `code` is CUDA's own number (100, 46, 802 …)
    "cuda-error": ("code",),
    "cuda-not-available": (),  # torch.cuda.is_available() is False, "CUDA is not available"
    "no-cuda-gpus": (),  # "No CUDA GPUs are available"
    "found-no-driver": (),  # torch: "Found no NVIDIA driver on your system"
    "driver-too-old": ("found",),  # torch: "driver on your system is too old (found version 11040)"; found = "11.4"
    "device-count-wrong": ("shown", "expected"),  # fewer devices than there are cards
    # nvidia-smi, NVML, kernel
    "smi-failed": (),  # "couldn't communicate with the NVIDIA driver"
    "smi-not-found": (),
    "smi-no-devices": (),  # "No devices were found"
    "nvml-version-mismatch": ("library",),
    "nvml-unknown-error": (),
    "xid": ("number",),
    "gpu-lost": (),  # fallen off the bus, "GPU is lost"
    "machine-powers-off": (),  # the computer shuts down or restarts under load
    "after-suspend": (),  # it began after sleep, suspend or hibernation
    "after-driver-update": (),
    "after-kernel-update": (),
    "after-container-reload": (),  # containers lose the GPU after systemctl daemon-reload or an update
    # architecture
    "no-kernel-image": (),
    "arch-not-compatible": ("card", "capability", "supported"),  # torch's warning; supported = "sm_50 sm_60 …"
    "old-architecture": ("capability",),  # the report is about a generation that builds have dropped (Kepler … Volta)
    "torch-not-compiled-with-cuda": (),
    # installation
    "no-matching-distribution": ("requirement", "versions", "index"),
    "dll-not-found": ("library",),  # WinError 126, DLL load failed
    "shared-library-not-found": ("library",),  # cannot open shared object file
    "cudnn-version-mismatch": ("compiled", "found"),
    "undefined-symbol": ("library",),  # libraries of two versions in one process
    "triton-missing": (),
    "works-elsewhere": (),  # the same card works from another environment or interpreter of this machine
    # containers
    "docker-no-device-driver": (),  # could not select device driver "" with capabilities: [[gpu]]
    "container-driver-not-detected": (),  # the image's banner: The NVIDIA Driver was not detected
    "docker-run-without-gpus": (),  # a docker command line that asks for no GPU
    # AMD
    "hip-error": ("text",),
    "integrated-gpu-chosen": (),
    # devices in the program
    "invalid-device-ordinal": ("ordinal",),
    "device-mismatch": ("first", "second"),
    "visible-devices-ignored": (),  # set in the program, without effect
    # memory
    "out-of-memory": ("tried_bytes", "allocated_bytes", "reserved_bytes", "free_bytes", "total_bytes", "other_bytes"),
    "memory-fragmented": (),  # memory is free or reserved, yet cannot be had in one piece; the allocator's settings matter
    "memory-not-released": (),  # in use although no process is shown, or the process has gone
    "memory-spill": (),  # slow instead of out of memory; shared GPU memory in use (Windows)
    "memory-grows": (),  # a leak
    # the loader
    "bus-error-in-worker": (),
    "shared-memory-exhausted": (),
    "pin-memory-thread-exited": (),
    "spawn-bootstrapping": (),  # freeze_support, "bootstrapping phase"
    "workers-zero": (),
    "loader-waits": (),  # GPU utilisation low or in waves while batches load
    # speed
    "low-utilisation": ("percent",),
    "slow-after-update": (),
    "slower-over-time": (),
    "slow-when-display-off": (),
    "stuck-in-low-clocks": (),  # P8, low clock, cool and slow
    "thermal-slowdown": (),
    "power-capped": (),
    "pcie-narrow": ("width", "width_max", "generation"),  # under load, or by measured bandwidth
    "slow-storage": (),
    "loss-explodes": (),
    # laptops
    "gpu-switched-off": (),  # Eco mode, integrated only, vanished from the device manager
    "ecc-error": (),
    # reports that turn out to be nothing
    "healthy-remark": ("what",),  # sm_86 on sm_89, PCIe Gen 1 at idle, Task Manager showing 0 %
}
