"""Description of a component without torch: configs, presets, workloads, shapes, parameters and work.

The parent process plans, estimates and reports from these facts alone; `network.py` beside each `spec.py` holds the
modules and is imported in workers only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.models.signature import Node, Signature

Draw = Literal["normal", "uniform", "binary", "given"] | tuple[float, ...]
"""Distribution of values: N(0, 1), U[0, 1), fair 0/1, as a brought model's inputs were given, or one of these values
with equal chance."""
Signal = Literal["", "picture", "audio"]
Layer = Literal["linear", "conv1d", "conv2d", "conv3d", "attention"]
"""Kinds of layers, by torch.nn's classes, and torch's attention function: what quantisers and attention kernels can do
depends on them."""
Quantisation = Literal["", "dynamic", "weight-only", "static", "fp8", "mxfp8", "nvfp4"]
"""Way in which a variant computes in less precision than its dtype; each kind has its own error budget."""
LEAST_SQNR_DB: Mapping[Quantisation, float] = {
    "dynamic": 25.0,
    "weight-only": 25.0,
    "static": 15.0,
    "fp8": 15.0,
    "mxfp8": 15.0,
    "nvfp4": 10.0,
}
"""Signal-to-quantisation-noise ratio that each output of a quantised variant must have at least.

For normal values, e4m3 has 31.5 dB with one scale and 30.6 with one for each 32 values, and e2m1 in blocks of 16 has
20.5 (tests/backends/test_mx.py computes all three); a network's output has less, since the errors of its layers add up.
So `mxfp8` has the budget of `fp8`, and `nvfp4` one that is 5 dB lower."""

LEAST_WEIGHT_BYTES: Mapping[Quantisation, float] = {
    "dynamic": 1.0,
    "weight-only": 1.0,
    "static": 1.0,
    "fp8": 1.0,
    "mxfp8": 1.0,
    "nvfp4": 0.5,
}
"""Bytes of a quantised weight at least, without its share of scales."""


LARGE_STATE_BYTES = 256 << 20
"""fp32 bytes of a set of inputs above which two sets are drawn instead of four."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named input or output of a workload."""

    name: str
    shape: tuple[int, ...]
    draw: Draw = "normal"
    """Distribution of a benchmark input."""
    keep_fp32: bool = False
    """Stays fp32 in half-precision variants: inputs of a sine or cosine, and outputs that are fp32 in any variant.
    With t and mouse rounded to bf16 the relative RMS error of the world model is 0.42 instead of 0.01."""
    signal: Signal = ""
    """Pictures are also compared by PSNR, audio by SNR."""
    dtype: str = ""
    """torch's name of a dtype that no variant changes, such as int64 or bool; "": the variant's own."""
    given: str = ""
    """torch's name of the floating dtype that its user gave it, or that the user's own call returned; "": float32."""
    order: tuple[int, ...] = ()
    """Axes of an input that is laid out in memory in another order, from the slowest to the fastest; (): as they are. A
    channels-last picture has (0, 2, 3, 1)."""
    held: bool = False
    """For an input: its values belong to the workload, every set of inputs has them, and no check changes them. For an
    output: it depends on no input."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def floating(self) -> bool:
        """Whether its values are real numbers, not indices, codes or truth values."""
        return not self.dtype or "float" in self.dtype

    def element_bytes(self, usual: float) -> float:
        """Bytes of an element where one that follows the variant's dtype has `usual`."""
        if self.dtype:
            return 1 if self.dtype == "bool" else int("".join(filter(str.isdigit, self.dtype))) / 8
        return max(4.0, usual) if self.keep_fp32 else usual


def laid_out(tensor: Any, order: Sequence[int]) -> Any:
    """The tensor with its axes in memory in this order, the slowest first; () is contiguous. A copy only where it is
    laid out otherwise."""
    if not order:
        return tensor.contiguous()
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(*order).contiguous().permute(*back)


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of one call; floors are derived from it."""

    flops: int
    """Two for each multiply-add of linear layers, convolutions and attention; elementwise work is not counted."""
    weight_elements: int
    """Elements of parameters read at least once in the call."""
    io_elements: int
    """Elements of the workload's inputs read and outputs written, each once."""
    convolution_flops: int = 0
    """The part of `flops` in convolutions whose kernel has more than one element, which Winograd's or Fourier
    transforms can compute with fewer multiplications."""


@dataclass(frozen=True, slots=True)
class DynamicAxis:
    """An axis of an input that has several sizes in the calls of one engine, and its range."""

    input: str
    axis: int
    name: str
    """Name of its dimension: axes of one dimension always have the same size."""
    min: int
    usual: int
    """Size of the workload's own inputs."""
    max: int


@dataclass(frozen=True, slots=True)
class Size:
    """Other shapes that a workload's engine is judged and timed at."""

    name: str
    """Name as tables print it: `x.0=8`."""
    seen: bool
    """True if it is among the sizes that were asked for; an engine made for those alone fails at others."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    work: Work


@dataclass(frozen=True, slots=True)
class Workload:
    """One way to call a component: inputs and outputs with fixed shapes, in the order of `forward`."""

    name: str
    summary: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    work: Work | None = None
    """Work of a model that was described by running it; None: a worker counts it, on the meta device where the network
    runs there (`bakeoff.record.kept` keeps it)."""
    frames_per_call: int = 1
    """Video frames that a call delivers. For audio: the video frames whose samples a stream keeps of the call."""
    calls_per_frame: int | None = 1
    """Calls of this cost that one frame needs (denoising steps and the context pass). None: fps is not defined."""
    axes: tuple[DynamicAxis, ...] = ()
    """Axes whose size may differ from call to call; (): shapes are static."""
    usual: str = ""
    """The size of `inputs` as tables print it, where there are `axes`."""
    sizes: tuple[Size, ...] = ()
    """The other sizes, where there are `axes`."""
    call: "Signature | None" = None
    """Form of its user's call of the module, with the result's; None: named tensors in order, and a tuple."""
    result: "Node | None" = None

    @property
    def set_count(self) -> int:
        """Number of drawn sets of inputs: four, or two where a set is large."""
        return 2 if sum(spec.elements for spec in self.inputs) * 4 > LARGE_STATE_BYTES else 4

    @property
    def changed_set_count(self) -> int:
        """Number of sets that also have references for changed values: two, or one where a set is large."""
        return self.set_count // 2

    def at(self, size: Size) -> "Workload":
        """Return the workload with the shapes of one of its sizes, and no others."""
        return replace(self, inputs=size.inputs, outputs=size.outputs, work=size.work, axes=(), usual="", sizes=())

    def minimum_bytes(self, work: Work, weight_bytes: float, element_bytes: float) -> int:
        """Least memory traffic of a call of this work: weights, inputs and outputs, each moved once.

        `weight_bytes` is the size of a parameter, `element_bytes` that of an element of an input or output. A tensor
        that stays fp32 counts at least four bytes an element, one with a dtype of its own that dtype's.
        """
        tensors = sum(spec.elements * spec.element_bytes(element_bytes) for spec in self.inputs + self.outputs)
        return round(work.weight_elements * weight_bytes + tensors)


@dataclass(frozen=True, slots=True)
class Carry:
    """State of a stream: `output` of workload `workload` becomes `input` of the next call of workload `to`."""

    workload: str
    output: str
    to: str
    input: str
    axis: int | None = None
    """None: the output replaces the input. Otherwise a sliding window along `axis`: drop the oldest entries and append
    the output."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The order of workloads when a stream of frames is made, and the state that passes between them.

    A stream calls each workload of `opening` once, in order, and then the workloads of `each`, in order, again and
    again.
    """

    each: tuple[str, ...]
    """Workloads called for every frame, or every few frames, in order."""
    carries: tuple[Carry, ...]
    opening: tuple[str, ...] = ()
    """Workloads called once, in order, before `each`, to make the initial state; () where zeros are the initial
    state. None of them is in `each`."""
    zeros: tuple[str, ...] = ()
    """Inputs that are zeros in the first call of a stream."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """All workloads, in the order of their first calls."""
        return (*self.opening, *self.each)


@dataclass(frozen=True, slots=True)
class Correction:
    """Work that torch's counter cannot see in a call, because the network computes it in another way: added to its
    counts. Each component that has one says why."""

    flops: int = 0
    convolution_flops: int = 0


def _exact(_config: Any, _workload: str, _batch: int) -> Correction:
    return Correction()


def _no_stream(_config: Any, _workload: str) -> Stream | None:
    return None


@dataclass(frozen=True, slots=True)
class Preset:
    """A named config; `label` is what tables print beside it when it is not the published size."""

    name: str
    config: Any
    parameters: int
    """Trainable ones, as published; the worker that counts the work checks it."""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Component:
    """One neural component. Functions take the component's own frozen config dataclass."""

    name: str
    summary: str
    credit: str
    presets: tuple[Preset, ...]
    default_preset: Mapping[str, str]
    """Device ("cpu", "cuda") to preset name."""
    default_workloads: Mapping[str, tuple[str, ...]]
    """Device to the workloads a sweep takes when none is named."""
    workload_names: Callable[[Any], tuple[str, ...]]
    """The standard workloads of a config, as listings print them."""
    workload: Callable[[Any, str, int], Workload]
    """(config, workload name, batch) to the workload; raises BakeoffError for an unknown name."""
    tolerance_fp32: float
    """Relative L2 error that an fp32 implementation may have."""
    network: str
    """Module that holds `build(config, workload, batch) -> torch.nn.Module`; needs torch."""
    folder: str = ""
    """Description of a brought model. `network` then holds `open_network(folder)`, which has its own `inputs`."""
    weights: str = ""
    """Weights that it brings, as a record names them; "": they are drawn, or from a file."""
    source_hash: str = ""
    """Hash of what decides its outputs; "": its files are hashed."""
    place: str = ""
    """Place in its user's pipeline, such as `unet` or `vae.decode`; "": unknown."""
    denormals: str = ""
    """Weights and activations that hold denormal numbers; "": none, or not known."""
    runs_on_host: bool = True
    """A GPU's references may be made on the host: its code has no kernels for the GPU alone."""
    dtypes: tuple[str, ...] = ()
    """In which a sweep takes it where none is asked for; (): those of the device."""
    compiles: bool = False
    """Its code calls torch.compile by itself."""
    correction: Callable[[Any, str, int], Correction] = _exact
    """(config, workload name, batch) to what the count of its work lacks."""
    keep_fp32: tuple[str, ...] = ()
    """Parts of its modules, by name or path, that half precision leaves in fp32."""
    layers: tuple[Layer, ...] = ()
    """Kinds of layers in its modules; a sweep leaves out default options of backends that need another kind."""
    stream: Callable[[Any, str], Stream | None] = _no_stream
    """(config, workload name) to the stream that the workload is called in; None: calls share no state."""
    fp64: bool = True
    """Its modules can compute in fp64. Where they cannot, references are fp32, and their records say so."""
    checkpoint_prefixes: tuple[str, ...] = ()
    """Keys of a published checkpoint that belong to this component; empty: all of them."""
    checkpoint_strip: tuple[str, ...] = ()
    """Prefixes that training wrappers put before a key; they are removed in this order."""

    def preset(self, name: str) -> Preset:
        """Return the preset of this name. Raises BakeoffError if there is none."""
        for preset in self.presets:
            if preset.name == name:
                return preset
        known = [preset.name for preset in self.presets]
        text = f"{self.name} has no preset '{name}'{meant(name, known)}; it has {', '.join(known)}"
        raise BakeoffError(text, "unknown-name")

    def network_module(self) -> Any:
        """Return what builds the module, and needs torch. To be called in workers only."""
        module = import_module(self.network)
        return module.open_network(self.folder) if self.folder else module


def require_positive_integers(config: Any, component: str) -> None:
    """Check the fields of a config dataclass that are declared `int`, `tuple[int, int]` or `tuple[int, ...]`.

    Each integer must be at least 1. A tuple must have the declared length; `tuple[int, ...]` must not be empty.
    Raises BakeoffError naming the field.
    """
    for name, kind in get_type_hints(type(config)).items():
        value, parts = getattr(config, name), get_args(kind)
        if kind is int:
            values, fits, wanted = (value,), True, "a whole number"
        elif get_origin(kind) is tuple and parts[0] is int:
            values, open_ended = value, parts[-1] is Ellipsis
            fits = isinstance(value, tuple) and (bool(value) if open_ended else len(value) == len(parts))
            wanted = "one or more whole numbers" if open_ended else counted(len(parts), "whole number")
        else:
            continue
        # type() and not isinstance(), since True is an int
        if not (fits and all(type(entry) is int and entry >= 1 for entry in values)):
            text = f"{component} config: {name} is {value!r}; it must be {wanted} of at least 1"
            raise BakeoffError(text, code="bad-config")
