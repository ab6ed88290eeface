"""Prints, as JSON, what this host has: libraries that do not import and why, versions, GPUs, bakeoff's code.

Each library is imported in a process of its own, since one that does not fit its CUDA libraries may end the process.
"""

import json
import subprocess
import sys
from importlib.util import find_spec

_NEEDED = {"bakeoff": "import bakeoff.cli.sweep"}
_COMMON = {
    "torch": "import torch",
    "torchao": "import torchao.quantization",
    "onnx": "import onnx, onnxscript",
    "vl_convert": "import vl_convert",
    "pytest": "import pytest",
}
_CHECKS = {
    "cpu": {**_NEEDED, **_COMMON, "onnxruntime": "import onnxruntime", "openvino": "import openvino"},
    "cuda": {
        **_NEEDED,
        **_COMMON,
        "torch": "import torch\nif not torch.cuda.is_available(): raise ImportError('torch sees no GPU')",
        "torch_tensorrt": "import torch_tensorrt",
        "onnxruntime": (
            "import onnxruntime\nif 'CUDAExecutionProvider' not in onnxruntime.get_available_providers():"
            " raise ImportError('it is built without the CUDA provider; install onnxruntime-gpu')"
        ),
    },
}
_PATIENCE_S = 120.0


def find_missing(device: str, fast: bool) -> dict[str, str]:
    """The name of each library that does not import, with the last line that it said.

    If it must be `fast`, only bakeoff is imported, and of the others the name of each that is not installed.
    """
    checks = {name: code for name, code in _CHECKS[device].items() if not fast or name in _NEEDED}
    running = {
        name: subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for name, code in checks.items()
    }
    missing = {name: "not installed" for name in _CHECKS[device] if name not in checks and find_spec(name) is None}
    for name, process in running.items():
        try:
            said = process.communicate(timeout=_PATIENCE_S)[1].strip().splitlines()
        except subprocess.TimeoutExpired:
            process.kill()
            said = [*process.communicate()[1].splitlines(), f"its import took longer than {_PATIENCE_S:.0f} s"]
        if process.returncode:
            missing[name] = said[-1] if said else f"its import ended with exit code {process.returncode}"
    return missing


def main() -> None:
    found: dict[str, object] = {"missing": find_missing(sys.argv[1], "fast" in sys.argv[2:])}
    if "bakeoff" not in found["missing"]:  # type: ignore[operator]
        from bakeoff.machine import host, paths
        from bakeoff.record.source import code_hash

        gpus = host.read_host().gpus
        found |= {
            "code": code_hash(),
            "versions": dict(host.read_versions()),
            "gpus": [gpu["name"] for gpu in gpus],
            "driver": str(gpus[0].get("driver", "")) if gpus else "",
            "runs": str(paths.runs_folder().absolute()),
            "cache": str(paths.cache_folder()),
            "dirty": paths.commit()[1],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
