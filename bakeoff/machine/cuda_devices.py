"""A script that prints the UUIDs of the GPUs that CUDA sees, in CUDA's order, as JSON; exit code 1 without a driver.

It asks the driver (CUDA Driver API, cuDeviceGetUuid_v2), which alone knows its order of devices and which MIG instance
it takes. It creates no context. Run as a file, so it imports nothing of bakeoff.
"""

import ctypes
import json
import sys
import uuid


def device_uuids() -> list[str]:
    """Return the UUIDs without NVML's prefix. Raises OSError if the driver's library is missing or reports an error."""
    cuda = ctypes.CDLL("libcuda.so.1")
    _check(cuda.cuInit(0))
    count = ctypes.c_int()
    _check(cuda.cuDeviceGetCount(ctypes.byref(count)))
    found = []
    for ordinal in range(count.value):
        device, data = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        _check(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
        _check(cuda.cuDeviceGetUuid_v2(ctypes.byref(data), device))
        found.append(str(uuid.UUID(bytes=bytes(data))))
    return found


def _check(result: int) -> None:
    if result == 100:  # CUDA_ERROR_NO_DEVICE: everything is hidden, or there is no GPU
        print("[]")
        sys.exit(0)
    if result != 0:
        raise OSError(f"the CUDA driver returned error {result}")


if __name__ == "__main__":
    try:
        print(json.dumps(device_uuids()))
    except (OSError, AttributeError):
        sys.exit(1)
