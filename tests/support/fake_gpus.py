"""GPUs that this host lacks: as many as the variable BAKEOFF_TEST_GPUS says, all alike."""

import os
import sys

from fake_nvml import FakeNvml, whole_gpu

from bakeoff.machine import gpus, host

COUNT = "BAKEOFF_TEST_GPUS"


def uuid(number: int) -> str:
    return f"{number:08}-0000-0000-0000-000000000000"


def install() -> None:
    """Have this process find the GPUs, of which CUDA_VISIBLE_DEVICES shows some, and a torch that is built for them."""
    count = int(os.environ.get(COUNT, "0"))
    if count:
        sys.modules["pynvml"] = FakeNvml([whole_gpu(uuid(number)) for number in range(count)])  # type: ignore[assignment]
        gpus._told_by_driver = lambda: None
        version = host._version
        host._version = lambda name: version(name).removesuffix("+cpu")
