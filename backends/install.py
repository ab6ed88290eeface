"""Commands, for error messages, that install a missing library and leave the installed torch as it is.

Without constraints pip takes the newest torch-tensorrt, which replaces torch under every package that was built for it.
"""

from importlib.metadata import PackageNotFoundError, version

_SETS = {"2.13": "constraints.txt", "2.11": "constraints-torch-2.11.txt"}
"""The checkout's constraint files, by the torch version that they keep."""


def tensorrt_command() -> str:
    """Return the command that installs torch_tensorrt and TensorRT for the installed torch."""
    torch = _torch()
    minor = ".".join(torch.split(".")[:2])
    if minor not in _SETS:
        return f"pip install 'torch=={torch}' 'torch-tensorrt=={minor}.*'"
    other = f" CONSTRAINTS={_SETS[minor]}" if _SETS[minor] != "constraints.txt" else ""
    return f"make install TENSORRT=1{other} (or pip install -c {_SETS[minor]} -e '.[gpu,tensorrt,modelopt]')"


def modelopt_command() -> str:
    """Return the command that installs modelopt beside the installed torch."""
    minor = ".".join(_torch().split(".")[:2])
    constraints = f"-c {_SETS[minor]} " if minor in _SETS else ""
    return f"run in a checkout of bakeoff: pip install {constraints}-e '.[modelopt]'"


def onnxruntime_gpu_command() -> str:
    """Return the command that replaces onnxruntime by onnxruntime-gpu, which has its files in the same folder."""
    minor = ".".join(_torch().split(".")[:2])
    constraints = f"-c {_SETS[minor]} " if minor in _SETS else ""
    return f"pip uninstall --yes onnxruntime onnxruntime-gpu; pip install {constraints}onnxruntime-gpu"


def _torch() -> str:
    """Return the installed torch's version; if there is none, that of the first constraint file."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return next(iter(_SETS))
