"""The table of backends, in the order in which reports print them. A backend is imported when it is first used."""

from bakeoff.backends.backend import Backend
from bakeoff.models.lookup import look_up

_TABLE = {
    "eager": "bakeoff.backends.eager:BACKEND",
    "cudagraph": "bakeoff.backends.cudagraph:BACKEND",
    "inductor": "bakeoff.backends.inductor:BACKEND",
    "aoti": "bakeoff.backends.aoti:BACKEND",
    "torch.export": "bakeoff.backends.torch_export:BACKEND",
    "tensorrt": "bakeoff.backends.torch_tensorrt.jit:BACKEND",
    "tensorrt-aot": "bakeoff.backends.torch_tensorrt.ahead_of_time:BACKEND",
    "openvino": "bakeoff.backends.openvino:BACKEND",
    "onnxruntime": "bakeoff.backends.onnxruntime.backend:BACKEND",
    "int8": "bakeoff.backends.int8:BACKEND",
    "int8-static": "bakeoff.backends.int8_static:BACKEND",
    "fp8": "bakeoff.backends.fp8:BACKEND",
}


def backend_names() -> tuple[str, ...]:
    return tuple(_TABLE)


def resolve_backend(reference: str) -> Backend:
    """Return the backend for a name in the table, or for a user's own `package.module:ATTRIBUTE`.

    Raises BakeoffError if the name is unknown, the module cannot be imported or the attribute is not a Backend.
    """
    return look_up(reference, _TABLE, Backend, "BACKEND")
