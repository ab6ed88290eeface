"""Makes the environment variables and folders of workers, and selects those that a record may name.

Workers have folders in the cache folder, because builds write gigabytes and $TMPDIR may be memory.
"""

import contextlib
import fcntl
import os
import re
import shutil
import site
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import bakeoff
from bakeoff.machine import host, paths
from bakeoff.machine.build_cache import HOME
from bakeoff.machine.files import digest
from bakeoff.machine.gpus import VISIBLE
from bakeoff.models.lookup import USER_CODE

IN_WORKER = "BAKEOFF_WORKER_FDS"
"""Environment variable of workers and of what they start, with the descriptors that belong to the worker alone."""
WEIGHTS = "BAKEOFF_WEIGHTS"
"""Environment variable of a sweep's workers, with the path of the memory in which the first one leaves its subject's
weights for the others."""
_KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""Make glibc's malloc keep freed memory. By default it returns large blocks to the kernel at each free, and the next
call pays for every page again: eager convolutions took up to twice as long, differently in each process. CUDA's caching
allocator and ONNX Runtime's arena keep memory too."""
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Make malloc request huge pages (madvise, glibc 2.35 and later), if the kernel gives them on request: otherwise
weights of a gigabyte lie in 4 KiB pages, more than a core's TLB holds. docs/trials/floor-steps.md has the gain."""
PASSIVE = {"OMP_WAIT_POLICY": "passive"}
"""Makes threads of OpenMP, and of ONNX Runtime in this lab, sleep as soon as they wait (OpenMP 5.2, section 21.2.7)."""
_CACHES_OFF = ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FX_GRAPH_CACHE")
"""Variables removed for workers: inductor's caches show whether a build was cold or warm, and that it compiled."""
_RECORDED = re.compile(
    r"^(OMP_|GOMP_|KMP_|MKL_|DNNL_|ONEDNN_|OPENBLAS_|BLIS_|ATEN_|LRU_CACHE_CAPACITY|TORCH|PYTORCH_|CUDA_|NVIDIA_TF32"
    r"|CUBLAS|CUDNN_|TRITON_|ORT_|OV_|OPENVINO_|GLIBC_TUNABLES|MALLOC_|_RJEM_MALLOC_CONF|JE_MALLOC_CONF|TCMALLOC_|MIMALLOC_"
    r"|PYTHONMALLOC|LD_PRELOAD|LD_BIND_NOW)"
)
"""Variables that affect measurements: of threads, libraries, compilers, memory allocators and the dynamic linker."""
_LIBRARIES = ("LD_PRELOAD",)
"""Lists of libraries, separated by spaces or colons (ld.so(8)). Another malloc is the usual one; its name is stored."""
_PATHS = ("_DIR", "_PATH", "_HOME")
"""Endings of variables that contain a path. They are not stored: paths affect no number and may name a user."""


def worker_environment(threads: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with what must be set before torch is imported.

    The user's own settings of memory win. The numbers of threads are set to `threads`, variables that switch inductor's
    caches off are removed, and of several GPUs only the first is visible. `extra` overrides all of these.

    OpenMP's wait policy is left at the runtime's default (libgomp spins for about ten milliseconds, then sleeps), as
    where an engine is deployed. With OMP_WAIT_POLICY=passive every parallel region must wake threads: on a virtual
    machine a call of a few small operators took five times as long.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _CACHES_OFF}
    environment = _KEPT_MEMORY | _HUGE_PAGES | kept
    environment |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["PYTHONUNBUFFERED"] = "1"
    visible = host.read_host().gpus
    if len(visible) > 1:  # a worker's only GPU is the one that is locked and recorded
        environment[VISIBLE] = str(visible[0]["uuid"])
    return environment | dict(extra or {})


def own_home(folder: Path) -> dict[str, str]:
    """Return variables that keep what builds store in a user's home within `folder`, a variant's cache folder.

    Compilers keep caches in the home folder unasked (~/.triton, ~/.nv, ~/.cache of OpenVINO and ccache): a build would
    find those of another variant or sweep, and not be cold. What users have put there stays readable: settings,
    Python's user site, and weights that torch.hub and huggingface_hub downloaded.
    """
    home = folder / HOME
    own = {
        "HOME": home,
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_DATA_HOME": home / ".local/share",
        "XDG_STATE_HOME": home / ".local/state",
        "TORCHINDUCTOR_CACHE_DIR": folder / "inductor",
        "TRITON_CACHE_DIR": folder / "triton",
        "CUDA_CACHE_PATH": folder / "cuda",
        "CCACHE_DIR": folder / "ccache",
    }
    users = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    kept = {
        "XDG_CONFIG_HOME": os.path.expanduser("~/.config"),
        "HF_HOME": users / "huggingface",
        "TORCH_HOME": users / "torch",
        "PYTHONUSERBASE": site.getuserbase(),
        "BAKEOFF_CACHE": paths.cache_folder(),
    }
    found = own | {name: os.environ.get(name) or default for name, default in kept.items()}
    return {name: str(value) for name, value in found.items()}


def user_code_path() -> dict[str, str]:
    """Return the variable that names the working folder, so that a worker finds a user's package.module:ATTRIBUTE
    there."""
    return {USER_CODE: os.getcwd()}


def lab_code_path() -> dict[str, str]:
    """Return the variable by which another interpreter finds this lab's code: a folder of links in the cache.

    A checkout keeps parts of the package beside it, and only this interpreter's installation knows where.
    """
    package = Path(bakeoff.__file__).resolve().parent
    parts = {path.name: path for path in package.iterdir() if path.name != "__pycache__"}
    for name in ("backends", "models", "export"):
        spec = find_spec(f"bakeoff.{name}")
        assert spec is not None
        assert spec.origin is not None
        parts[name] = Path(spec.origin).resolve().parent
    folder = paths.cache_folder() / "lab" / digest(sorted(map(str, parts.values())))
    (folder / "bakeoff").mkdir(parents=True, exist_ok=True)
    for name, path in parts.items():
        with suppress(FileExistsError):
            (folder / "bakeoff" / name).symlink_to(path)
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def find_user_code(folder: str) -> None:
    """Make modules in `folder` importable, behind Python's own and installed ones: a profile.py there hides none."""
    if folder and folder not in sys.path:
        sys.path.append(folder)


_OWNER = "owner.lock"
_LEAST_AGE_S = 60.0
"""Seconds before a folder without a lock counts as abandoned: another process may just be making it."""


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """`<cache>/work/bakeoff-XXXX`, which exists as long as this process holds the lock in it."""

    path: Path
    _lock: int
    """Descriptor of the locked file; the kernel releases it when this process ends, however that happens."""

    @property
    def temporary(self) -> Path:
        """Folder for TMPDIR: files that compilers leave there, as torch and ccache do, must not outlive the worker."""
        return self.path / "tmp"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # it was removed before
            os.close(self._lock)


def make_work_folder() -> WorkFolder:
    """Make a folder for one worker, and remove those of processes that were killed. Raises OSError if that fails."""
    parent = paths.cache_folder() / "work"
    parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(parent)
    path = Path(tempfile.mkdtemp(prefix="bakeoff-", dir=parent))
    try:
        (path / "tmp").mkdir()
        lock = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return WorkFolder(path, lock)


def _remove_stale(parent: Path) -> None:
    for path in parent.glob("bakeoff-*"):
        try:
            lock = os.open(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _LEAST_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)
            continue
        except OSError:
            continue  # another user's
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def without_folders(text: str) -> str:
    """Replace the folders of this machine and its user in `text` by `...`, because records are published."""
    own = {str(paths.cache_folder()), str(paths.checkout() or ""), sys.prefix, os.path.expanduser("~")}
    with contextlib.suppress(FileNotFoundError):  # the working folder may have been deleted
        own.add(os.getcwd())
    for folder in sorted(own, key=len, reverse=True):
        if len(folder) > 1 and os.path.isabs(folder):
            text = text.replace(folder, "...")
    return text


def _base_names(libraries: str) -> str:
    return ":".join(os.path.basename(path) for path in re.split("[ :]+", libraries) if path)


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a worker's environment that affect measurements, by name."""
    return {
        name: _base_names(value) if name in _LIBRARIES else without_folders(value)
        for name, value in sorted(environment.items())
        if _RECORDED.match(name) and not name.endswith(_PATHS)
    }
