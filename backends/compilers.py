"""Finds the compilers and headers that inductor and Triton need."""

import os
import shutil
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

_USUAL_TOOLKIT = "/usr/local/cuda"
_TOOLKIT_OF_WHEELS = "cu13"
"""Folder in the namespace package `nvidia` in which the wheels of CUDA 13 form one toolkit."""
_HEADERS_OF_WHEELS = ("cuda_runtime_api.h", "crt/host_defines.h", "nv/target")
"""One header that AOTInductor's wrapper includes from each wheel: nvidia-cuda-runtime, which torch requires, and
nvidia-cuda-crt and nvidia-cuda-cccl, which the extra `gpu` adds."""


def missing_cpp_compiler() -> str | None:
    """Return why C++ cannot be compiled; None if it can. Only $CXX, or else g++, is used (torch/_inductor/config.py,
    cpp.cxx)."""
    named = os.environ.get("CXX")
    if named is None:
        return None if shutil.which("g++") else "no C++ compiler found (looked for $CXX and g++); install g++"
    return None if shutil.which(named) else f"CXX='{named}' is not a program; install it, or unset CXX and install g++"


def missing_for_triton() -> str | None:
    """Return why Triton cannot compile the C code that loads its kernels; None if it can."""
    return missing_c_compiler() or missing_python_headers()


def missing_c_compiler() -> str | None:
    """Return why Triton has no C compiler; None if it has one.

    Triton uses $CC as one program, else gcc, else clang (triton/runtime/build.py, _build, 3.6 and 3.7).
    """
    named = os.environ.get("CC")
    if c_compiler() is not None:
        return None
    if named is None:
        return "Triton needs a C compiler and found none (looked for $CC, gcc, clang); install gcc"
    return f"Triton needs a C compiler and CC='{named}' is not a program; install it, or unset CC and install gcc"


def c_compiler() -> str | None:
    """Return the path of the C compiler: $CC as one program, else gcc, else clang; None if there is none."""
    named = os.environ.get("CC")
    return shutil.which(named) if named is not None else shutil.which("gcc") or shutil.which("clang")


def missing_python_headers() -> str | None:
    """Return why Triton cannot include Python.h; None if it can."""
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    header = Path(sysconfig.get_paths(scheme=scheme)["include"], "Python.h")
    if not header.exists():
        return f"Triton needs Python's headers and {header} does not exist; install python3-dev or python3-devel"
    return None


def missing_cuda_toolkit() -> str | None:
    """Return why C++ that calls CUDA cannot be compiled; None if it can, given `toolkit_environment`."""
    home = _toolkit_of_host()
    if (home / "include" / "cuda_runtime_api.h").exists() or toolkit_environment():
        return None
    return (
        f"no CUDA toolkit found ({home}/include/cuda_runtime_api.h does not exist; looked at $CUDA_HOME, $CUDA_PATH, "
        f"nvcc, {_USUAL_TOOLKIT}, and nvidia/{_TOOLKIT_OF_WHEELS} beside torch); install the toolkit of torch's CUDA "
        "version and set CUDA_HOME to it, or pip install 'cuda-toolkit[cccl,crt,cudart]'"
    )


def toolkit_environment() -> Mapping[str, str]:
    """Return CUDA_HOME for the toolkit in torch's wheels; empty if the user names a toolkit or the host has one.

    torch itself does not search the wheels (torch/utils/cpp_extension.py, _find_cuda_home).
    """
    if named_toolkit() or (_toolkit_of_host() / "include" / "cuda_runtime_api.h").exists():
        return {}
    found = find_spec("nvidia")
    for folder in (found.submodule_search_locations if found else None) or ():
        home = Path(folder, _TOOLKIT_OF_WHEELS)
        if all((home / "include" / name).exists() for name in _HEADERS_OF_WHEELS):
            return {"CUDA_HOME": str(home)}
    return {}


def named_toolkit() -> str | None:
    """Return the toolkit that $CUDA_HOME or $CUDA_PATH names; None if neither is set. A named toolkit is the only one
    used."""
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")


def _toolkit_of_host() -> Path:
    """Return $CUDA_HOME or $CUDA_PATH, else the toolkit of nvcc, else /usr/local/cuda, as torch's _find_cuda_home."""
    if named := named_toolkit():
        return Path(named)
    nvcc = shutil.which("nvcc")
    return Path(nvcc).parents[1] if nvcc else Path(_USUAL_TOOLKIT)
