"""Opens a compiled model on an RTX GPU, as a session of ONNX Runtime with the provider's plugin."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Unavailable
from bakeoff.backends.onnxruntime.options import Options as SessionOptions
from bakeoff.backends.onnxruntime.session import OpenSession, load_errors, new_stream, session_options
from bakeoff.backends.tensorrt_rtx.compile_engine import PROVIDER, load_cuda_runtime
from bakeoff.backends.tensorrt_rtx.options import INSTALL

if TYPE_CHECKING:
    import onnxruntime


def open_context(
    path: Path,
    cuda_graph: bool,
    device: str,
    threads: int,
    runtime_cache: Path | None = None,
    profile: Path | None = None,
) -> OpenSession:
    """Open a compiled model. `runtime_cache` is a folder for what the provider finishes for this card; None: none.

    Raises Unavailable if the provider offers no device here, or is not among the session's providers.
    """
    import onnxruntime

    stream = new_stream() if device == "cuda" else None
    settings = session_options(SessionOptions(), threads, profile)
    own = {"enable_cuda_graph": str(int(cuda_graph))}
    if stream is not None:
        own |= {"has_user_compute_stream": "1", "user_compute_stream": str(stream.cuda_stream)}
    if runtime_cache is not None:
        own["nv_runtime_cache_path"] = str(runtime_cache)
    settings.add_provider_for_devices([_device()], own)
    try:
        session = onnxruntime.InferenceSession(str(path), settings, enable_fallback=0)
    except load_errors() as error:
        raise RuntimeError(f"{PROVIDER}: {' '.join(str(error).split())}") from error
    if PROVIDER not in session.get_providers():
        found = ", ".join(session.get_providers())
        raise Unavailable(f"ONNX Runtime opened the model with {found}, without {PROVIDER}; {INSTALL}")
    return OpenSession(session, stream)


@cache
def _device() -> "onnxruntime.OrtEpDevice":
    """Register the provider in this process; return its first device, which is the one that CUDA shows first."""
    import onnxruntime
    import onnxruntime_ep_nv_tensorrt_rtx as plugin

    load_cuda_runtime(Path(plugin.__file__).parent)
    try:
        onnxruntime.register_execution_provider_library(PROVIDER, plugin.get_library_path())
    except load_errors() as error:
        raise Unavailable(f"{PROVIDER} cannot be loaded: {' '.join(str(error).split())}") from error
    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    if not found:
        text = f"{PROVIDER} finds no RTX GPU with a driver that it knows; update the driver"
        raise Unavailable(text, "missing-device")
    return found[0]
