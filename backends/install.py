"""Commands, for error messages, that install a missing library and leave the installed torch as it is.

Without its version pip takes the newest torch-tensorrt, which replaces torch under every package that was built for it.
"""

from importlib.metadata import PackageNotFoundError, version

_SETS = {"2.13": "constraints.txt", "2.11": "constraints-torch-2.11.txt"}
"""The checkout's constraint files, by the torch version that they keep."""


def extra_command(extra: str, *beside: str) -> str:
    """Return the command that installs bakeoff with one of its extras, and the requirements `beside` it.

    It names a checkout or a wheel's file, never the bare name, which pip would look up in a package index: nothing of
    this project is published there.
    """
    install = " ".join(["pip install", *(f"'{requirement}'" for requirement in beside)])
    return f"{install} -e '.[{extra}]' in a checkout, or {install} 'WHEEL[{extra}]' with the wheel's file"


def tensorrt_command() -> str:
    """Return the command that installs torch_tensorrt and TensorRT for the installed torch."""
    minor = _minor()
    other = f" CONSTRAINTS={_SETS.get(minor)}" if minor != next(iter(_SETS)) else ""
    inside = f" (in a checkout: make install TENSORRT=1{other})" if minor in _SETS else ""
    return f"pip install 'torch=={_torch()}' 'torch-tensorrt=={minor}.*'{inside}"


def modelopt_command() -> str:
    """Return the command that installs modelopt beside the installed torch."""
    return extra_command("modelopt", f"torch=={_torch()}")


def onnxruntime_gpu_command() -> str:
    """Return the command that replaces onnxruntime by onnxruntime-gpu, which has its files in the same folder."""
    inside = f" (in a checkout with -c {_SETS[_minor()]})" if _minor() in _SETS else ""
    return f"pip uninstall --yes onnxruntime onnxruntime-gpu; pip install onnxruntime-gpu{inside}"


def _minor() -> str:
    return ".".join(_torch().split(".")[:2])


def _torch() -> str:
    """Return the installed torch's version; if there is none, that of the first constraint file."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return next(iter(_SETS))
