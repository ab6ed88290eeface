"""The installed torch's version, and commands, for error messages, that install a library and leave torch as it is.

Without its version pip takes the newest torch-tensorrt, which replaces torch under every package that was built for it.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_SETS = {"2.13": "constraints.txt", "2.11": "constraints-torch-2.11.txt"}
"""The checkout's constraint files, by the torch version that they keep."""
_STATED = re.compile(r"^(__version__|cuda)\b.*= '(.*)'$", re.MULTILINE)


def stated_by_torch(folders: Iterable[str] | None = None) -> dict[str, str]:
    """Return `__version__` and `cuda` as torch/version.py states them; None there, and a torch that is not installed,
    leave a name out.

    `folders` are those of another interpreter's torch. The file is read, not run: no process imports torch for it.
    Every build of torch writes it (pytorch, tools/generate_torch_version.py; 2.13), also those that pip does not know.
    """
    if folders is None:
        found = find_spec("torch")
        folders = (found.submodule_search_locations if found else None) or ()
    for folder in folders:
        with suppress(OSError):
            return dict(_STATED.findall(Path(folder, "version.py").read_text(encoding="utf-8")))
    return {}


def torch_version() -> str:
    """Return the installed torch's version: its distribution's, else the one that torch/version.py states; "" if there
    is none."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return stated_by_torch().get("__version__", "")


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
    return torch_version() or next(iter(_SETS))
