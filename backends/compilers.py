"""The programs and headers that inductor and Triton need to compile what they generate, looked for as they do it."""

import os
import shutil
import sysconfig
from pathlib import Path

_USUAL_TOOLKIT = "/usr/local/cuda"


def missing_cpp_compiler() -> str | None:
    """Why C++ cannot be compiled; None if it can. Only $CXX, else g++ is taken (torch/_inductor/config.py, cpp.cxx)."""
    named = os.environ.get("CXX")
    if named is None:
        return None if shutil.which("g++") else "no C++ compiler found (looked for $CXX and g++); install g++"
    return None if shutil.which(named) else f"CXX='{named}' is not a program; install it, or unset CXX and install g++"


def missing_for_triton() -> str | None:
    """Why Triton cannot compile the C with which it loads kernels; None if it can."""
    return missing_c_compiler() or missing_python_headers()


def missing_c_compiler() -> str | None:
    """Why Triton has no C compiler; None if it has. It takes $CC as one program, else gcc, else clang
    (triton/runtime/build.py, _build, 3.6 and 3.7)."""
    named = os.environ.get("CC")
    if named is None and not (shutil.which("gcc") or shutil.which("clang")):
        return "Triton needs a C compiler and found none (looked for $CC, gcc, clang); install gcc"
    if named is not None and not shutil.which(named):
        return f"Triton needs a C compiler and CC='{named}' is not a program; install it, or unset CC and install gcc"
    return None


def missing_python_headers() -> str | None:
    """Why Triton cannot include Python.h; None if it can."""
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    header = Path(sysconfig.get_paths(scheme=scheme)["include"], "Python.h")
    if not header.exists():
        return f"Triton needs Python's headers and {header} does not exist; install python3-dev or python3-devel"
    return None


def missing_cuda_toolkit() -> str | None:
    """Why C++ that calls CUDA cannot be compiled; None if it can.

    The toolkit is $CUDA_HOME or $CUDA_PATH, else where nvcc is, else /usr/local/cuda (torch/utils/cpp_extension.py,
    _find_cuda_home). The libraries that come with torch's wheel are not looked at.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc")
    if home is None:
        home = str(Path(nvcc).parents[1]) if nvcc else _USUAL_TOOLKIT
    if Path(home, "include", "cuda_runtime_api.h").exists():
        return None
    return (
        f"no CUDA toolkit found ({home}/include/cuda_runtime_api.h does not exist; looked at $CUDA_HOME, $CUDA_PATH, "
        f"nvcc, {_USUAL_TOOLKIT}); install the toolkit of torch's CUDA version, or set CUDA_HOME to it"
    )
