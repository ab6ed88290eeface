"""Facts about a brought model and its input sets while it is described, and helpers that descriptions share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bakeoff.models.brought.about import InputSet
from bakeoff.models.brought.model import InputSets, Model
from bakeoff.models.component import DynamicAxis, Size, TensorSpec, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Node, Signature
from bakeoff.models.sizes import Dimension
from bakeoff.process.jobs import DescribeJob
from bakeoff.worker.brought.hidden_state import Untouched
from bakeoff.worker.brought.network import Flat, GivenInputs, returned_key
from bakeoff.worker.cast import GivenDtypes
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import cast_input
from bakeoff.worker.work import WorkCounts

Tensors = dict[str, Tensor]


class CastModel(nn.Module):
    """Calls the model with stored values, cast to one dtype and moved to its device; returns outputs on the CPU."""

    def __init__(self, flat: Flat, specs: Sequence[TensorSpec], dtype: str, device: str) -> None:
        super().__init__()
        self.flat = flat
        self.specs = specs
        self.dtype = dtype
        self.device = device

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = zip(self.specs, tensors, strict=True)
        outputs = self.flat(*(cast_input(spec, tensor, self.dtype, self.device) for spec, tensor in given))
        return on_cpu(outputs)


@dataclass(slots=True)
class SetFacts:
    """Facts about one input set, as far as they have been found out."""

    name: str
    call: Signature
    calls: list[Tensors]
    """Tensors of each given call; floating ones in fp32, or in fp64 if they are given so."""
    result: Node
    specs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    given_outputs: tuple[Tensor, ...]
    """Outputs of the first call, as the module returned them, on the CPU."""
    counted: WorkCounts
    flat: Flat
    dtype: str
    """Dtype in which the model is called: `given`, or fp32 if it does not run as given on its device."""
    device: str
    """Device on which the model is called."""
    noise: float
    """Largest relative L2 of an output between two calls in a row on the same inputs."""
    axes: tuple[DynamicAxis, ...] = ()
    usual: str = ""
    sizes: tuple[Size, ...] = ()
    batches: tuple[Size, ...] = ()
    fp32_dtypes: tuple[torch.dtype, ...] = ()
    """Dtypes of the outputs when the model computes in fp32; () if it does not compute in fp32."""

    @property
    def workload(self) -> Workload:
        return Workload(self.name, "", self.specs, self.outputs)

    @property
    def described(self) -> InputSet:
        return InputSet(
            self.name,
            self.call,
            self.result,
            self.specs,
            self.outputs,
            self.counted.work(self.specs + self.outputs),
            len(self.calls),
            tuple(spec.name for spec in self.specs if spec.held),
            self.axes,
            self.usual,
            self._as_now(self.sizes),
            self._as_now(self.batches),
        )

    def _as_now(self, sizes: Sequence[Size]) -> tuple[Size, ...]:
        """Return the sizes with all that has been found out about their tensors since they were run."""
        return tuple(
            replace(one, inputs=_with_shapes(self.specs, one.inputs), outputs=_with_shapes(self.outputs, one.outputs))
            for one in sizes
        )

    @property
    def given(self) -> Tensors:
        """Tensors to write, by key: inputs of all calls, and outputs that the user's own call returned."""
        given = {f"{self.name}/{n}/{name}": one for n, call in enumerate(self.calls) for name, one in call.items()}
        returned = {
            returned_key(self.name, spec.name): one.detach().contiguous().clone()
            for spec, one in zip(self.outputs, self.given_outputs, strict=True)
            if self.dtype == "given"
        }
        return given | returned

    @property
    def held(self) -> CastModel:
        """The model as a module that takes values as they are stored."""
        return CastModel(self.flat, self.specs, self.dtype, self.device)

    def source(self, workload: Workload | None = None) -> GivenInputs:
        return GivenInputs(self.described, workload or self.workload, self.given)


@dataclass(slots=True)
class ModelFacts:
    """Facts about a model, as far as they have been found out."""

    job: DescribeJob
    report: Report
    said: Model
    """What the user declared about the model."""
    kind: type[nn.Module]
    """The class of the module as it was loaded."""
    weights: str
    module: nn.Module
    """The module with the declared buffers as arguments."""
    parts: tuple[str, ...]
    """Those names in `said.keep_fp32` that are parts of the module, which half precision leaves in fp32."""
    given: GivenDtypes
    before: Untouched
    asked: InputSets
    """The calls of each input set to describe."""
    dimensions: Mapping[str, tuple[Dimension, ...]]
    """The sizes that are requested for each set."""
    notes: list[str]
    sets: tuple[SetFacts, ...] = ()
    compiles: bool = False
    mixed: bool = False
    precision: str = ""
    """Dtype of the references."""
    tolerance: float = 0.0
    """Relative L2 that rows in fp32 may have."""


def _with_shapes(specs: Sequence[TensorSpec], others: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, shape=other.shape) for spec, other in zip(specs, others, strict=True))


def on_cpu(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(one.cpu() if type(one) in (Tensor, nn.Parameter) else one for one in outputs)


def dtype_name(tensor: Tensor) -> str:
    return name_of(tensor.dtype)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def bad_model(text: str) -> BakeoffError:
    return BakeoffError(text, code="bad-user-code")
