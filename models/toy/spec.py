"""Four small workloads with the signatures of the real components, for trying and testing bakeoff.

A call takes milliseconds on a CPU.

`world` takes a frame and a KV cache like `wm`, `picture` a latent like `image`, `sound` like `audio`, `stream` a latent
and explicit caches like `matrix-vae`. These are not published models: their figures are of no interest.
"""

from dataclasses import dataclass

from bakeoff.models.component import Carry, Component, Preset, Stream, TensorSpec, Workload
from bakeoff.models.errors import no_such

WORKLOADS = ("world", "picture", "sound", "stream")


@dataclass(frozen=True, slots=True)
class Config:
    width: int = 32
    """Channels everywhere; a multiple of 4."""
    length: int = 16
    """Tokens, pixels a side or samples."""


def workload(config: Config, name: str, batch: int) -> Workload:
    """Return the workload of this name. Raises BakeoffError for an unknown name."""
    width, length = config.width, config.length
    io: tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]
    if name == "world":
        cached = (batch, 4 * length, width)
        io = (
            (
                TensorSpec("x", (batch, length, width)),
                TensorSpec("t", (batch, 1), "uniform", keep_fp32=True),
                TensorSpec("cache_k", cached),
                TensorSpec("cache_v", cached),
            ),
            (TensorSpec("velocity", (batch, length, width)),),
        )
    elif name == "picture":
        io = (
            (TensorSpec("z", (batch, width, length, length)),),
            (TensorSpec("image", (batch, 3, 2 * length, 2 * length), signal="picture"),),
        )
    elif name == "sound":
        io = (
            (TensorSpec("z", (batch, width, length)),),
            (TensorSpec("audio", (batch, 2, 4 * length), signal="audio"),),
        )
    elif name == "stream":
        cache = TensorSpec("cache.00", (batch, width, 2, length, length))
        io = (
            (TensorSpec("z", (batch, 1, width, length, length)), cache),
            (TensorSpec("video", (batch, 1, 3, length, length), keep_fp32=True, signal="picture"), cache),
        )
    else:
        raise no_such("toy", "workload", name, WORKLOADS)
    return Workload(name, f"toy with the signature of {name}", *io)


def stream(_config: Config, name: str) -> Stream | None:
    """Return the stream of `stream`, whose cache begins as zeros and passes from call to call; None for the others."""
    if name != "stream":
        return None
    return Stream((name,), (Carry(name, "cache.00", name, "cache.00"),), zeros=("cache.00",))


SPEC = Component(
    name="toy",
    summary="four toys with the signatures of the real components; no figure means anything",
    credit="this project",
    presets=(Preset("tiny", Config(), 24_451, "toy"), Preset("small", Config(width=64, length=32), 89_859, "toy")),
    default_preset={"cpu": "tiny", "cuda": "small"},
    default_workloads={"cpu": ("world",), "cuda": ("world",)},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    stream=stream,
    tolerance_fp32=1e-4,
    network="bakeoff.models.toy.network",
    layers=("linear", "conv1d", "conv2d", "conv3d", "attention"),
)
