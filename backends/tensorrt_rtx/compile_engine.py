"""The program that compiles one ONNX model into engines, in a process of its own: see `compiler.compile_model`.

Run as a file, with an object of JSON as its argument: `model`, `folder` and `target`. Writes the context model and its
engines to `folder`, and prints an object of JSON: what was built, or `error`. Imports neither torch nor this lab.
"""

import ctypes
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

MODEL, PROVIDER = "model.onnx", "NvTensorRTRTXExecutionProvider"
_COMPATIBILITY = "ep_compatibility_info."
"""Metadata of a compiled model: the headers of its engines, in hexadecimal, by the provider's name."""
_VIRTUAL = ".virtual"
"""Ending of a registered name that lets a provider offer devices to compile for without running on them."""


def compiled(model: Path, folder: Path, target: str) -> dict[str, Any]:
    """Compile a model for `target` (sm89), write it to `folder`, and return what was built."""
    import onnx
    import onnxruntime
    import onnxruntime_ep_nv_tensorrt_rtx as plugin

    onnxruntime.set_default_logger_severity(3)
    load_cuda_runtime(Path(plugin.__file__).parent)
    registered = PROVIDER + _VIRTUAL
    onnxruntime.register_execution_provider_library(registered, plugin.get_library_path())
    device = next(each for each in onnxruntime.get_ep_devices() if each.ep_name == registered)
    settings = onnxruntime.SessionOptions()
    settings.add_provider_for_devices([device], {"nv_target_sm": target})
    os.chdir(folder)  # the engines' paths are stored as they are given, and are relative to the model
    started = time.monotonic()
    onnxruntime.ModelCompiler(settings, str(model)).compile_to_file(MODEL)
    seconds = time.monotonic() - started
    made, source = onnx.load(MODEL, load_external_data=False), onnx.load(str(model), load_external_data=False)
    engines = [node for node in made.graph.node if node.op_type == "EPContext"]
    for number, node in enumerate(engines):
        _rename(node, f"{number}.engine", registered)
    for entry in made.metadata_props:
        if entry.key == _COMPATIBILITY + registered:
            entry.key = _COMPATIBILITY + PROVIDER
    onnx.save(made, MODEL)
    outside = Counter(node.op_type for node in made.graph.node if node.op_type != "EPContext")
    return {
        "engines": len(engines),
        "engine_s": seconds,
        "engine_peak_bytes": _peak_bytes(),
        "engine_bytes": sum(Path(f"{number}.engine").stat().st_size for number in range(len(engines))),
        "inside": dict(Counter(node.op_type for node in source.graph.node) - outside),
        "outside": dict(outside),
        "precisions": _precisions(source.graph),
        "provider": plugin.__version__,
    }


def load_cuda_runtime(plugin: Path) -> None:
    """Load the CUDA runtime that the provider's library needs: one that is loaded or found, else that of its folder.

    The wheel's file has another name than the one by which the library asks for it.
    """
    try:
        ctypes.CDLL("libcudart.so.13")
    except OSError:
        for library in sorted(plugin.glob("libcudart.so.13*")):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _rename(node: Any, file: str, registered: str) -> None:
    """Give an engine's file a name of its own, and the node the name under which its provider runs it."""
    for attribute in node.attribute:
        if attribute.name == "ep_cache_context":
            os.replace(attribute.s, file)
            attribute.s = file.encode()
        elif attribute.name in ("source", "partition_name"):
            attribute.s = attribute.s.replace(registered.encode(), PROVIDER.encode())
    node.name = node.name.replace(registered, PROVIDER)


def _precisions(graph: Any) -> str:
    """Return the floating-point types of a graph's tensors, as ONNX names them."""
    import onnx

    types = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)]
    types += [tensor.data_type for tensor in graph.initializer]
    names = {onnx.TensorProto.DataType.Name(kind).lower() for kind in types}
    return ", ".join(sorted(name for name in names if "float" in name))


def _peak_bytes() -> int:
    """Return the peak resident size of this program alone; that of rusage includes the process that started it."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) << 10


def main() -> None:
    asked = json.loads(sys.argv[1])
    try:
        said = compiled(Path(asked["model"]), Path(asked["folder"]), asked["target"])
    except Exception as error:  # noqa: BLE001  # the process that started this one reads it
        said = {"error": " ".join(str(error).split())}
    print(json.dumps(said), flush=True)
    os._exit(0)  # the provider's own end would ask the driver


if __name__ == "__main__":
    main()
