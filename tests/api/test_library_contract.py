"""The contract of a device, kept by the processor."""

from contract import DeviceContract


class TestProcessor(DeviceContract):
    config = {"use_gpu": False}  # noqa: RUF012
