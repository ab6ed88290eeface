"""Compiles an ONNX model into engines for a GPU that need not be here: in a process of its own, also without a driver.

The provider's compile-only mode (option nv_target_sm, tensorrt_rtx_provider_options.h of its wheel) needs no GPU, but
its library is linked against the driver's. Where there is no driver, the process gets `driverless.c` in place of it;
only that process does, and never beside a real driver.
"""

import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.artifact_cache import load_or_build
from bakeoff.backends.backend import BuildContext, Unavailable, Unsupported
from bakeoff.backends.compilers import c_compiler
from bakeoff.backends.format import BadArtifact
from bakeoff.backends.graphs import check_not_quantised, operators
from bakeoff.backends.onnxruntime.export import MODEL, export_program
from bakeoff.backends.tensorrt_rtx import fp8
from bakeoff.backends.tensorrt_rtx.engines import EngineFile, check_context
from bakeoff.backends.tensorrt_rtx.options import DISTRIBUTION, HERE, TARGETS, capability_of

if TYPE_CHECKING:
    from torch import Tensor, nn

ABOUT = "about.json"
"""What was built, beside the context model and its engines, as `compile_engine` prints it."""
_HERE = Path(__file__).parent
_SOURCE = _HERE / "driverless.c"
_LIBRARIES = {"SYSFS": "libsys.so", "CUDART": "libcudart.so.13", "CUDA": "libcuda.so.1", "NVML": "libnvidia-ml.so.1"}
"""The parts of the source, and the names of the libraries that stand for the driver's."""
_REFUSED = 86
"""Exit status of a process that asked the driver's stand-in for more than it answers."""
_UNKNOWN = re.compile(r"While parsing node number \d+ \[(\w+) ->")
"""What the parser logs of an operator that it does not take (onnx-tensorrt, ModelImporter.cpp); version 0.5.0 of the
provider then leaves the whole graph outside, also nodes on which that operator does not depend."""
_DEVICE = {"vendor": "0x10de", "device": "0x2684", "class": "0x030000"}
"""What /sys shows of the PCI device: NVIDIA, a GPU of capability 8.9, a display controller."""


@cache
def has_driver() -> bool:
    """Return whether NVIDIA's driver can be loaded here."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled model in the cache."""

    folder: Path
    about: Mapping[str, Any]
    """What was built, as `compile_engine` prints it."""
    engine: EngineFile
    graph: str
    """Hash of the module's graph."""
    cached: bool


def compiled(module: "nn.Module", inputs: "Mapping[str, Tensor]", target: str, context: BuildContext) -> Compiled:
    """Return the module's engines for `target`, which may be HERE, from the cache or compiled now.

    Raises Unsupported if TensorRT takes no node of the graph, or if it has no engines for this GPU, or none in fp8.
    """
    target = _own_target() if target == HERE else target
    check_not_quantised(module, "torch.onnx", "quantise with modelopt, or leave the quantising backend out")
    exported = export_program(module, inputs, context, target, version(DISTRIBUTION))
    quantised = fp8.OPERATOR in operators(exported.program.graph)
    if quantised and target not in fp8.TAKEN_BY:
        raise Unsupported(f"{target} has no fp8; build for {', '.join(fp8.TAKEN_BY)}")
    folder = context.cache_dir / f"rtx-{exported.key}"

    def build(scratch: Path) -> None:
        with tempfile.TemporaryDirectory(dir=context.work_dir) as made:
            onnx = Path(made) / "onnx"
            exported.convert(onnx, translations=fp8.translations() if quantised else {})
            compile_model(onnx / MODEL, scratch, target, context.cache_dir.parent)

    loaded, cached = load_or_build(
        folder, _checked, build, context.work_dir / "rtx", (BadArtifact, OSError, ValueError)
    )
    context.keep(lambda: {"folder": folder.name, "graph": exported.graph})
    return Compiled(folder, *loaded, exported.graph, cached)


def kept(folder: Path, graph: str) -> Compiled:
    """Return engines that an earlier build left in the cache; raises BadArtifact if they are damaged."""
    return Compiled(folder, *_checked(folder), graph, True)


def _checked(folder: Path) -> tuple[Mapping[str, Any], EngineFile]:
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    engine = check_context(folder / MODEL, sizes)
    return json.loads((folder / ABOUT).read_bytes()), engine


def _own_target() -> str:
    """Return the target of this process's GPU. Raises Unsupported if there is none for it."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    if f"sm{major}{minor}" not in TARGETS:
        known = ", ".join(map(capability_of, TARGETS))
        name = torch.cuda.get_device_name()
        raise Unsupported(
            f"TensorRT for RTX runs on compute capability {known}, and {name} has {major}.{minor}; use tensorrt-aot"
        )
    return f"sm{major}{minor}"


def compile_model(model: Path, folder: Path, target: str, shared: Path) -> Mapping[str, Any]:
    """Compile the model at `model` for `target` and write its context model, engines and ABOUT to a new `folder`.

    `shared` is the folder in which stand-ins for the driver are kept. Raises Unsupported if TensorRT takes no node of
    the model, Unavailable if the stand-ins cannot be compiled, RuntimeError with the compiler's text if it fails.
    """
    folder.mkdir(parents=True)
    environment = dict(os.environ) if has_driver() else {**os.environ, **driverless_environment(shared)}
    asked = json.dumps({"model": str(model.absolute()), "folder": str(folder.absolute()), "target": target})
    program = [sys.executable, str(_HERE / "compile_engine.py"), asked]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    said = _last_object(done.stdout)
    if "engines" not in said or done.returncode:
        lines = done.stderr.strip().splitlines()
        why = said.get("error") or (lines[-1] if lines else f"it ended with {done.returncode} and no result")
        what = "asked for a driver" if done.returncode == _REFUSED else "failed"
        raise RuntimeError(f"the compilation for {target} {what}: {why}")
    if not said["engines"]:
        names = [*dict.fromkeys(_UNKNOWN.findall(done.stderr))] or [
            f"{n} {name}" for name, n in said["outside"].items()
        ]
        raise Unsupported(f"TensorRT for RTX takes no graph with {', '.join(names)}; use another backend")
    (folder / ABOUT).write_text(json.dumps(said), encoding="utf-8")
    return said


def _last_object(text: str) -> Mapping[str, Any]:
    lines = text.strip().splitlines()
    try:
        said = json.loads(lines[-1]) if lines else {}
    except ValueError:
        said = {}
    return said if isinstance(said, dict) else {}


def driverless_environment(shared: Path) -> Mapping[str, str]:
    """Return the variables that give a new process stand-ins for the driver, which are compiled into `shared` first.

    Raises Unavailable if there is no C compiler, or if it fails.
    """
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    folder = shared / f"driverless-{digest}"
    if not folder.exists():
        shared.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shared) as scratch:
            made = Path(scratch) / "made"
            _make_stand_ins(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():  # nor has another process made it
                    raise
    libraries = [str(folder / name) for name in _LIBRARIES.values()]
    return {
        "LD_PRELOAD": " ".join([*libraries, os.environ.get("LD_PRELOAD", "")]).strip(),
        "DRIVERLESS_DRM": str(folder / "drm"),
    }


def _make_stand_ins(folder: Path) -> None:
    compiler = c_compiler()
    if compiler is None:
        raise Unavailable("engines are built without a driver by a C compiler's help, and there is none; install gcc")
    card, bus = folder / "drm" / "card0", folder / "pci" / "0000:01:00.0"
    card.mkdir(parents=True)
    bus.mkdir(parents=True)
    (card / "device").symlink_to(Path("../../pci") / bus.name)  # whose name is the device's address
    for name, value in _DEVICE.items():
        (bus / name).write_text(f"{value}\n")
    versions = folder / "cudart.map"
    versions.write_text("libcudart.so.13 { global: *; };\n")
    for part, name in _LIBRARIES.items():
        named = [f"-Wl,-soname,{name}"] + [f"-Wl,--version-script={versions}"] * (part == "CUDART")
        command = [compiler, "-O1", "-w", "-shared", "-fPIC", f"-D{part}", *named, "-o", str(folder / name)]
        done = subprocess.run([*command, str(_SOURCE), "-ldl"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{compiler} cannot compile {_SOURCE.name}: {done.stderr.strip()[-300:]}")
