"""The table of backends, in the order in which reports list them; `resolve_backend` imports one by its name."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bakeoff.backends.backend import Backend, by_options
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import look_up, module_name

_MODELOPT = Path(__file__).resolve().parents[1] / "examples" / "backends" / "nvidia_modelopt.py"
"""An example that suites of a checkout include; a wheel does not hold it."""
_TABLE = {
    "eager": "bakeoff.backends.eager:BACKEND",
    "cudagraph": "bakeoff.backends.cudagraph:BACKEND",
    "inductor": "bakeoff.backends.inductor:BACKEND",
    "aoti": "bakeoff.backends.aoti:BACKEND",
    "torch.export": "bakeoff.backends.torch_export:BACKEND",
    "tensorrt": "bakeoff.backends.torch_tensorrt.jit:BACKEND",
    "tensorrt-aot": "bakeoff.backends.torch_tensorrt.ahead_of_time:BACKEND",
    "tensorrt-rtx": "bakeoff.backends.tensorrt_rtx.backend:BACKEND",
    "openvino": "bakeoff.backends.openvino:BACKEND",
    "onnxruntime": "bakeoff.backends.onnxruntime.backend:BACKEND",
    "int8": "bakeoff.backends.int8:BACKEND",
    "int8-static": "bakeoff.backends.int8_static:BACKEND",
    "fp8": "bakeoff.backends.fp8:BACKEND",
    "mx": "bakeoff.backends.mx:BACKEND",
    **({"modelopt": f"{_MODELOPT}:BACKEND"} if _MODELOPT.is_file() else {}),
    "attention": "bakeoff.backends.attention:BACKEND",
    "fp16-accumulation": "bakeoff.backends.fp16_accumulation:BACKEND",
}


def backend_names() -> tuple[str, ...]:
    return tuple(_TABLE)


def backend_module(reference: str) -> str:
    """Return the name of the module that defines the backend."""
    return module_name(_TABLE.get(reference, reference))


def resolve_backend(reference: str) -> Backend:
    """Return the backend for a name in the table, or for a user's own `mine.py:ATTRIBUTE` or
    `package.module:ATTRIBUTE`.

    Raises BakeoffError if the name is unknown, the module cannot be imported, or the attribute is not a Backend; also
    if a user's backend has a name of the table or claims to be the baseline, since its rows would be mistaken for
    another's.
    """
    backend = look_up(reference, _TABLE, Backend, "mine.py:BACKEND")
    if reference not in _TABLE and reference not in _TABLE.values():
        if backend.name in _TABLE and resolve_backend(backend.name) is not backend:
            text = f"{reference} is called '{backend.name}', a backend of bakeoff; give it another name"
            raise BakeoffError(text, code="not-composable")
        if backend.baseline:
            text = f"{reference} sets baseline=True; speed-ups are computed against eager alone, so remove it"
            raise BakeoffError(text, code="bad-user-code")
    return backend


def may_overlap(steps: Iterable[tuple[Backend, Any]], device: str, beside: bool = False) -> bool:
    """Return whether a build by these backends and options may run at the same time as others on this device.

    On a GPU only if the request says so (`Policy.beside`).
    """
    if device == "cuda":
        return beside
    return all(by_options(backend.overlaps, options) for backend, options in steps)
