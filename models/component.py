"""Description of a component without torch: configs, presets, workloads, shapes, parameters and work.

The parent process plans, estimates and reports from these facts alone; `network.py` beside each `spec.py` has the
modules and is imported in workers only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.models.errors import no_such

if TYPE_CHECKING:
    from bakeoff.models.signature import Node, Signature

Draw = Literal["normal", "uniform", "binary", "given"] | tuple[float, ...]
"""Distribution of values: "normal" N(0, 1), "uniform" U[0, 1), "binary" 0 or 1 with equal chance, "given" drawn from
the values given with a brought model; numbers: one of them with equal chance."""
Signal = Literal["", "picture", "audio"]
Layer = Literal["linear", "conv1d", "conv2d", "conv3d", "attention"]
"""Kinds of layers: classes of torch.nn, and torch's attention function. Quantisers and attention kernels support only
some of them."""
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
"""Minimum signal-to-quantisation-noise ratio of each output of a quantised variant, in dB.

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
"""Minimum size of a quantised weight in bytes, without its share of scales."""


LARGE_STATE_BYTES = 256 << 20
"""Size of a set of inputs, in bytes as fp32, above which two sets are drawn instead of four."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named input or output of a workload."""

    name: str
    shape: tuple[int, ...]
    draw: Draw = "normal"
    """Distribution of a benchmark input."""
    keep_fp32: bool = False
    """Whether it stays fp32 in half-precision variants: an input of a sine or cosine, or an output that is always fp32.
    With t and mouse rounded to bf16 the relative RMS error of the world model is 0.42 instead of 0.01."""
    signal: Signal = ""
    """Pictures are also compared by PSNR, audio by SNR."""
    dtype: str = ""
    """torch's name of a dtype that no variant changes, such as int64 or bool; "": the variant's own."""
    given: str = ""
    """torch's name of the floating dtype in which the user gave an input, or the user's module returned an output; "":
    float32."""
    order: tuple[int, ...] = ()
    """Axes of an input in their order in memory, from the slowest to the fastest; (): contiguous. Channels last is
    (0, 2, 3, 1)."""
    held: bool = False
    """For an input: its values are the same in every set of inputs, and no check changes them. For an output: no input
    affects it."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def floating(self) -> bool:
        """Whether its values are real numbers, not indices, codes or truth values."""
        return not self.dtype or "float" in self.dtype

    def element_bytes(self, usual: float) -> float:
        """Return the size of an element in bytes, given the size `usual` of an element in the variant's dtype."""
        if self.dtype:
            return 1 if self.dtype == "bool" else int("".join(filter(str.isdigit, self.dtype))) / 8
        return max(4.0, usual) if self.keep_fp32 else usual


def laid_out(tensor: Any, order: Sequence[int]) -> Any:
    """Return the tensor with its axes in this order in memory, slowest first; () is contiguous.

    The tensor is copied only if its layout differs.
    """
    if not order:
        return tensor.contiguous()
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(*order).contiguous().permute(*back)


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of one call, from which floors (lower bounds of its time) are derived."""

    flops: int
    """Two operations for each multiply-add of linear layers, convolutions and attention; no elementwise work."""
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
    """Further shapes at which a workload's engine is judged and timed."""

    name: str
    """Name as tables print it: `x.0=8`."""
    seen: bool
    """True if this size was asked for. The other sizes show whether an engine works only at those asked for."""
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
    """Work of a model that was described by running it; None: a worker counts it, on the meta device if the network
    runs there (`bakeoff.record.kept` stores the count)."""
    frames_per_call: int = 1
    """Video frames that a call delivers. For audio: video frames whose samples a stream keeps from the call."""
    calls_per_frame: int | None = 1
    """Calls of this cost that one frame needs (denoising steps and the context pass). None: fps is not defined."""
    axes: tuple[DynamicAxis, ...] = ()
    """Axes whose size may differ from call to call; (): shapes are static."""
    usual: str = ""
    """The size of `inputs` as tables print it, if there are `axes`."""
    sizes: tuple[Size, ...] = ()
    """The other sizes, if there are `axes`."""
    call: "Signature | None" = None
    """Structure of the user's call of the module; None: the inputs as positional arguments, in order."""
    result: "Node | None" = None
    """Structure of the module's result; None: a tuple of the outputs."""

    @property
    def set_count(self) -> int:
        """Number of drawn sets of inputs: four, or two if a set is larger than LARGE_STATE_BYTES."""
        return 2 if sum(spec.elements for spec in self.inputs) * 4 > LARGE_STATE_BYTES else 4

    @property
    def changed_set_count(self) -> int:
        """Number of sets for which outputs of changed inputs are also checked: two, or one if a set is large."""
        return self.set_count // 2

    def at(self, size: Size) -> "Workload":
        """Return the workload with the shapes of one of its sizes, and without other sizes or dynamic axes."""
        return replace(self, inputs=size.inputs, outputs=size.outputs, work=size.work, axes=(), usual="", sizes=())

    def minimum_bytes(self, work: Work, weight_bytes: float, element_bytes: float) -> int:
        """Return the least memory traffic of a call in bytes: weights, inputs and outputs, each moved once.

        `weight_bytes` is the size of one parameter, `element_bytes` that of one element of an input or output. Elements
        of a tensor that stays fp32 have at least four bytes; those of a tensor with a fixed dtype, that dtype's size.
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
    """Workloads called once, in order, before `each`, to make the initial state; () if the initial state is zeros.
    None of them is in `each`."""
    zeros: tuple[str, ...] = ()
    """Inputs that are zeros in the first call of a stream."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """All workloads, in the order of their first calls."""
        return (*self.opening, *self.each)


@dataclass(frozen=True, slots=True)
class Correction:
    """Work to add to torch's counts of a call, because the network computes it in a form that is counted wrongly.

    Each component with a correction says why.
    """

    flops: int = 0
    convolution_flops: int = 0


def _exact(_config: Any, _workload: str, _batch: int) -> Correction:
    return Correction()


def _no_stream(_config: Any, _workload: str) -> Stream | None:
    return None


@dataclass(frozen=True, slots=True)
class Preset:
    """A named config. Tables print its `label` beside it if it is not the published size."""

    name: str
    config: Any
    parameters: int
    """Number of trainable parameters, as published; the worker that counts the work checks it."""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Component:
    """One neural component. Functions take the component's own frozen config dataclass."""

    name: str
    summary: str
    credit: str
    presets: tuple[Preset, ...]
    default_preset: Mapping[str, str]
    """Name of the default preset, by device ("cpu", "cuda")."""
    default_workloads: Mapping[str, tuple[str, ...]]
    """Workloads of a sweep that names none, by device."""
    workload_names: Callable[[Any], tuple[str, ...]]
    """The standard workloads of a config, as listings print them."""
    workload: Callable[[Any, str, int], Workload]
    """Returns the workload for (config, workload name, batch); raises BakeoffError for an unknown name."""
    tolerance_fp32: float
    """Relative L2 error that an fp32 implementation may have."""
    network: str
    """Name of the module with `build(config, workload, batch) -> torch.nn.Module`; importing it needs torch."""
    folder: str = ""
    """Folder of a brought model. `network` then has `open_network(folder)`, whose result makes module and inputs."""
    weights: str = ""
    """Name in records of the weights that the component brings; "": they are drawn or loaded from a file."""
    source_hash: str = ""
    """Hash of all that decides its outputs; "": the source files are hashed instead."""
    place: str = ""
    """Place in its user's pipeline, such as `unet` or `vae.decode`; "": unknown."""
    runs_on_host: bool = True
    """Whether references for a GPU may be computed on the host: no part of its code needs a GPU."""
    dtypes: tuple[str, ...] = ()
    """Dtypes of a sweep that names none; (): the default dtypes of the device."""
    compiles: bool = False
    """Whether its code calls torch.compile itself."""
    correction: Callable[[Any, str, int], Correction] = _exact
    """Returns the correction of counted work for (config, workload name, batch)."""
    keep_fp32: tuple[str, ...] = ()
    """Parts of its modules, by name or path, that half precision leaves in fp32."""
    layers: tuple[Layer, ...] = ()
    """Kinds of layers in its modules; a sweep leaves out default options of backends that need another kind."""
    stream: Callable[[Any, str], Stream | None] = _no_stream
    """Returns the stream in which a workload is called, for (config, workload name); None: calls share no state."""
    fp64: bool = True
    """Whether its modules can compute in fp64. If not, references are fp32, and records say so."""
    checkpoint_prefixes: tuple[str, ...] = ()
    """Prefixes of the checkpoint keys that belong to this component; (): all keys belong to it."""
    checkpoint_strip: tuple[str, ...] = ()
    """Prefixes that training wrappers put before a key; they are removed in this order."""

    def preset(self, name: str) -> Preset:
        """Return the preset of this name. Raises BakeoffError if there is none."""
        for preset in self.presets:
            if preset.name == name:
                return preset
        raise no_such(self.name, "preset", name, [preset.name for preset in self.presets])

    def network_module(self) -> Any:
        """Import and return the object whose `build` makes the module; needs torch, so call it in workers only."""
        module = import_module(self.network)
        return module.open_network(self.folder) if self.folder else module
