"""ONNX Runtime: torch.onnx's exporter, weights beside the graph, a session with inputs and outputs bound in place.

On CUDA the provider is CUDA's or TensorRT's, inputs and outputs stay on the device, and any node left to the CPU is
falling back. The CPU provider has no bf16 kernels. `int8` quantises the weights of MatMul nodes and their activations
as they come (dynamic); it is a variant of its own class, judged by its own budget. A model in the cache that no session
can be made of is exported again. A provider that cannot load is replaced by the CPU's with no more than a warning, so
the session's own list is compared with what was asked for.
"""

import contextlib
import importlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    Choice,
    Engine,
    Proof,
    Requirement,
    Unavailable,
    Unsupported,
)
from bakeoff.backends.exported import TORCH, export, forms, graph_hash, program_key, refuse_others, refuse_quantised
from bakeoff.backends.format import ArtifactFormat, Need, Opening, Run, Written
from bakeoff.backends.onnx_files import check_model, lay_out
from bakeoff.backends.port import Port, buffers_like
from bakeoff.backends.tracing import TRACED_CALLS, Kernel, Trace
from bakeoff.models.component import Quantisation

if TYPE_CHECKING:
    import onnxruntime
    import torch
    from torch import Tensor, nn

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
_INSTALL = "pip install 'bakeoff[cpu]' (or onnxruntime-gpu in place of onnxruntime, for CUDA)"
_OPSET = 20
_LEAST_RUNTIME = "1.18"
"""The first that reads opset 20 and IR version 10 (onnxruntime.ai/docs/reference/compatibility.html)."""
_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


@dataclass(frozen=True, slots=True)
class Options:
    provider: Literal["device", "cpu", "cuda", "tensorrt"] = "device"
    """`device`: the provider of the variant's device."""
    level: Literal["all", "extended", "basic", "none"] = "all"
    """Graph optimisations of the session."""
    int8: bool = False
    cuda_graph: bool = False
    """Each bound set of inputs is captured at its first call and replayed; the CUDA provider's."""


def _provider(options: Options, device: str) -> str:
    return _PROVIDERS[device if options.provider == "device" else options.provider]


def _host_gap(options: Options, device: str) -> str:
    if _provider(options, device) == _PROVIDERS["cpu"]:
        return ""
    try:
        version("onnxruntime-gpu")
    except PackageNotFoundError:
        return (
            f"the onnxruntime installed here has no {_provider(options, device)}; "
            "pip uninstall onnxruntime, then pip install onnxruntime-gpu: they share a folder"
        )
    return ""


def _objection(options: Options, device: str, dtype: str) -> str:
    wanted = _provider(options, device)
    if device == "cuda" and wanted == _PROVIDERS["cpu"]:
        return "the CPU provider on a CUDA variant would measure copies; write @cpu"
    if device == "cpu" and wanted != _PROVIDERS["cpu"]:
        return f"{wanted} runs on a GPU; write @cuda"
    if device == "cpu" and dtype == "bf16":
        return "ONNX Runtime's CPU provider has no bf16 kernels (NOT_IMPLEMENTED); use fp32"
    if options.int8 and dtype != "fp32":
        return "dynamic int8 quantises an fp32 graph; use fp32"
    if options.cuda_graph and wanted != _PROVIDERS["cuda"]:
        return "cuda_graph is the CUDA provider's; take provider=cuda on @cuda"
    if wanted == _PROVIDERS["tensorrt"] and dtype == "fp32":
        return "the TensorRT provider multiplies fp32 in TF32 (onnxruntime#26029); write tf32"
    return ""


def _quantises(options: Options) -> Quantisation:
    return "dynamic" if options.int8 else ""


@dataclass(slots=True)
class _Session(Engine):
    """A session, the names of its outputs, and what was learned when it was made."""

    session: "onnxruntime.InferenceSession"
    inputs: tuple[str, ...]
    takes: Mapping[str, str]
    outputs: "tuple[tuple[str, tuple[int, ...], Any], ...]"
    provider: str
    proof: Proof
    captured: bool
    bound: int = 0

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        refuse_others(self.takes, inputs)
        return self._bind(inputs)

    def port(self, inputs: "Mapping[str, Tensor]", outputs: Sequence[str]) -> Port:
        """Binding copies inputs that are not contiguous, so that the buffers are contiguous ones."""
        refuse_others(self.takes, inputs)
        buffers = buffers_like(inputs, contiguous=True)
        return Port(buffers, self._bind(buffers), outputs)

    def _bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        keep = _bound(self.session, self.inputs, tuple(inputs.values()), self.outputs)
        run = _runner(self.session, keep.results[0].device.type)
        settings = self._run_settings()

        def call() -> tuple["Tensor", ...]:
            run(keep.binding, settings)
            return keep.results

        return call

    def _run_settings(self) -> "onnxruntime.RunOptions | None":
        """A captured graph replays the addresses it was captured with, so each binding has a graph of its own."""
        if not self.captured:
            return None
        import onnxruntime

        self.bound += 1
        settings = onnxruntime.RunOptions()
        settings.add_run_config_entry("gpu_graph_id", str(self.bound))
        return settings

    def captures(self) -> bool:
        return self.captured

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        for _ in range(TRACED_CALLS):
            call()
        return _read_profile(Path(self.session.end_profiling()), self.provider)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A session's binding to memory, and the tensors that own it."""

    binding: "onnxruntime.IOBinding"
    inputs: "tuple[Tensor, ...]"
    results: "tuple[Tensor, ...]"


def _bound(
    session: "onnxruntime.InferenceSession",
    names: "Sequence[str]",
    tensors: "Sequence[Tensor]",
    outputs: "Sequence[tuple[str, tuple[int, ...], Any]]",
) -> _Bound:
    """Inputs where they lie and outputs in new memory beside them; nothing is copied that is contiguous."""
    import torch

    binding = session.io_binding()
    device = tensors[0].device
    kept = tuple(tensor.contiguous() for tensor in tensors)
    results = tuple(torch.empty(shape, dtype=dtype, device=device) for _, shape, dtype in outputs)
    place = (device.type, device.index or 0)
    for name, tensor in zip(names, kept, strict=True):
        binding.bind_input(name, *place, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    for (name, _, _), tensor in zip(outputs, results, strict=True):
        binding.bind_output(name, *place, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    return _Bound(binding, kept, results)


def _runner(session: "onnxruntime.InferenceSession", device: str) -> "Callable[..., None]":
    """Runs a binding; on CUDA once torch's current stream has done what it holds, inputs among it.

    The GPU providers run on a stream of their own, which waits for no other before a run (onnxruntime#26609, #32673);
    after it they wait for it themselves.
    """
    run: Callable[..., None] = session.run_with_iobinding
    if device != "cuda":
        return run
    import torch

    def run_after(*binding: Any) -> None:
        torch.cuda.current_stream().synchronize()
        run(*binding)

    return run_after


def _onnx_type(tensor: "Tensor") -> int:
    """The element type of the ONNX standard (onnx.proto, TensorProto.DataType); numpy has no bfloat16 to name it by."""
    import onnx
    import torch

    return {
        torch.float32: onnx.TensorProto.FLOAT,
        torch.float16: onnx.TensorProto.FLOAT16,
        torch.bfloat16: onnx.TensorProto.BFLOAT16,
    }[tensor.dtype]


def _read_profile(path: Path, provider: str) -> Trace:
    """Node times of the last calls of a session's profile, the first ones warm it up; and where each node ran."""
    events = json.loads(path.read_text(encoding="utf-8"))
    path.unlink(missing_ok=True)
    runs = [event for event in events if event.get("name") == "model_run"][-TRACED_CALLS:]
    begin = runs[0]["ts"]
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["ts"] >= begin:
            about = event["args"]
            name = f"{about['op_name']} {event['name'].removesuffix('_kernel_time')} ({about['provider']})"
            times[name] += event["dur"] * 1000
            counts[name] += 1
            if counts[name] == 1:
                (inside if about["provider"] == provider else outside)[about["op_name"]] += 1
    kernels = tuple(
        Kernel(name, counts[name] / len(runs), ns // len(runs), name.endswith(f"({provider})"))
        for name, ns in times.most_common()
    )
    return Trace(kernels, sum(run["dur"] for run in runs) * 1000 // len(runs), dict(inside), dict(outside))


@dataclass(frozen=True, slots=True)
class _Made:
    """An exported model in the cache, and a session of it."""

    path: Path
    session: "onnxruntime.InferenceSession"
    provider: str
    graph: str
    cached: bool


def _make(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> _Made:
    """Export the module, or find it exported. Raises Unavailable and Unsupported."""
    import onnxruntime

    provider = _provider(options, context.device)
    _preload(provider)
    if provider not in onnxruntime.get_available_providers():
        raise Unavailable(f"onnxruntime {onnxruntime.__version__} here has no {provider}; {_INSTALL}")
    refuse_quantised(module, "torch.onnx", "take onnxruntime[int8]")
    program = export(module, inputs)
    hashed = graph_hash([program.graph])
    folder = context.cache_dir / f"onnx-{program_key(program, hashed, options.int8)}"
    path = folder / "model.onnx"
    settings = _session_options(options, context.threads, context.work_dir / "profile" if context.trace else None)
    provided = _provider_options(options, context.device, context.dtype, context.cache_dir)
    session = _cached(path, provider, settings, provided)
    cached = session is not None
    if session is None:
        _convert(program, list(inputs), options, folder)
        session = _open(path, provider, settings, provided)
    return _Made(path, session, provider, hashed, cached)


def _preload(provider: str) -> None:
    """CUDA's libraries, which onnxruntime-gpu finds where torch's wheels left them, and TensorRT's, which it does not.

    Importing `tensorrt` loads those of its wheel; where it is absent they may still be on the loader's own path.
    """
    import onnxruntime

    if provider != _PROVIDERS["cpu"]:
        onnxruntime.preload_dlls()
    if provider == _PROVIDERS["tensorrt"]:
        with contextlib.suppress(ImportError):
            importlib.import_module("tensorrt")


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    made = _make(module, inputs, options, context)
    names = tuple(value.name for value in made.session.get_inputs())
    proof = _prove(made)
    if options.int8 and not proof.quantised:
        raise Unsupported("no MatMul of its graph has stored weights to quantise; for convolutions take int8-static")
    outputs = _outputs(made.session)
    return _Session(made.session, names, forms(inputs), outputs, made.provider, proof, options.cuda_graph)


def _outputs(session: "onnxruntime.InferenceSession") -> "tuple[tuple[str, tuple[int, ...], Any], ...]":
    """Name, shape and dtype of each output."""
    return tuple((value.name, tuple(value.shape), _torch_type(value.type)) for value in session.get_outputs())


def _torch_type(name: str) -> Any:
    import torch

    return {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(bfloat16)": torch.bfloat16}[name]


def _refusals() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises for a model that it cannot open; they have no base but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented")
    return (errors.RuntimeException, *(getattr(errors, name) for name in names))


def _cached(
    path: Path, provider: str, settings: "onnxruntime.SessionOptions", provided: Mapping[str, str]
) -> "onnxruntime.InferenceSession | None":
    """A session of the model in the cache; None where there is none, or its files are not what was written."""
    if not path.exists():
        return None
    try:
        return _open(path, provider, settings, provided)
    except _refusals():
        shutil.rmtree(path.parent)
        return None


def _convert(program: "torch.export.ExportedProgram", names: list[str], options: Options, folder: Path) -> None:
    """Leave the whole folder, with model.onnx and its weights beside it, or nothing."""
    import torch

    try:
        made = torch.onnx.export(program, dynamo=True, opset_version=_OPSET, input_names=names, verbose=False)
    except torch.onnx.OnnxExporterError as error:
        missing = re.findall(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'", str(error))
        if not missing:
            raise
        raise Unsupported(f"torch.onnx has no form of {', '.join(dict.fromkeys(missing))}") from error
    assert made is not None
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    full = part / "full" if options.int8 else part
    full.mkdir(exist_ok=True)
    made.save(str(full / "model.onnx"), external_data=True)
    del made
    if options.int8:
        _quantise(full / "model.onnx", part / "model.onnx")
        shutil.rmtree(full)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _quantise(full: Path, small: Path) -> None:
    """Dynamic int8 of MatMul. In a folder of its own: the weights beside a model are written where others may lie."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # onnxruntime 1.31 turns a Gemm's weights over and then infers shapes from what was noted of them before.
    model = onnx.load(str(full), load_external_data=False)
    del model.graph.value_info[:]
    onnx.save(model, str(full))
    quantize_dynamic(
        full,
        small,
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
        use_external_data_format=True,  # one protobuf file holds 2 GiB at most
    )


def _open(
    path: Path, provider: str, settings: "onnxruntime.SessionOptions", provided: Mapping[str, str]
) -> "onnxruntime.InferenceSession":
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), settings, providers=[(provider, dict(provided))])


def _session_options(options: Options, threads: int, profile: Path | None = None) -> "onnxruntime.SessionOptions":
    """`profile`: how the names of profiles begin; None for none."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    levels = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = {
        "all": levels.ORT_ENABLE_ALL,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "basic": levels.ORT_ENABLE_BASIC,
        "none": levels.ORT_DISABLE_ALL,
    }[options.level]
    if profile is not None:
        settings.enable_profiling = True
        settings.profile_file_prefix = str(profile)
    return settings


def _provider_options(options: Options, device: str, dtype: str, cache_dir: Path | None) -> dict[str, str]:
    """What a provider is told beyond its name. CUDA's own default multiplies fp32 in TF32 (onnxruntime 1.18 on)."""
    wanted = _provider(options, device)
    if wanted == _PROVIDERS["cuda"]:
        return {"use_tf32": str(int(dtype == "tf32")), "enable_cuda_graph": str(int(options.cuda_graph))}
    if wanted == _PROVIDERS["tensorrt"]:
        precision = {"trt_fp16_enable": str(dtype == "fp16"), "trt_bf16_enable": str(dtype == "bf16")}
        if cache_dir is None:
            return precision
        kept = str(cache_dir / "tensorrt")
        return precision | {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": kept,
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": kept,
        }
    return {}


def lost_provider(asked: str, session: "onnxruntime.InferenceSession") -> str:
    """What runs in place of the provider that was asked for; "" if it is there and first."""
    found = session.get_providers()
    return "" if found and found[0] == asked else f"{', '.join(found) or 'no provider'} in place of {asked}"


def _prove(made: _Made) -> Proof:
    """The session's providers and the graph it read; which node runs where, only a traced twin knows."""
    import onnx

    model = onnx.load(str(made.path), load_external_data=False)
    nodes = Counter(node.op_type for node in model.graph.node)
    integer = {node.name: "dynamic int8" for node in model.graph.node if node.op_type == "MatMulInteger"}
    stored = {tensor.name for tensor in model.graph.initializer}
    left = {node.name: _why_left(node, stored) for node in model.graph.node if integer and node.op_type in _PRODUCTS}
    return Proof(
        fell_back=lost_provider(made.provider, made.session),
        graphs=1,
        operators_inside=nodes,
        quantised=integer,
        skipped=left,
        facts={
            "providers": ", ".join(made.session.get_providers()),
            "opset": next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
            "ir_version": model.ir_version,
            "export_from_cache": made.cached,
        },
        graph_hash=made.graph,
        artifact_bytes=sum(file.stat().st_size for file in made.path.parent.iterdir()),
    )


def _why_left(node: Any, stored: set[str]) -> str:
    if node.op_type != "MatMul":
        return f"{node.op_type}: only MatMul is quantised"
    return "the quantiser left it" if stored.intersection(node.input) else "a product of two activations"


def _write(
    module: "nn.Module",
    inputs: "Mapping[str, Tensor]",
    options: Options,
    context: BuildContext,
    folder: Path,
    name: str,
) -> Written:
    import onnx

    if options.cuda_graph:
        raise Unsupported("a captured CUDA graph lives in one process; export it without cuda_graph and capture there")
    made = _make(module, inputs, options, context)
    lay_out(made.path, folder, name)
    model = onnx.load(str(folder / f"{name}.onnx"), load_external_data=False)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    needs = [Need("onnxruntime", "at least", _LEAST_RUNTIME)]
    if context.device == "cuda":
        needs.append(Need("driver", "at least"))
    return Written(f"{name}.onnx", (), tuple(needs), {"opset": opset, "ir_version": model.ir_version})


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    provider = _provider(opening.options, opening.device)
    _preload(provider)
    provided = _provider_options(opening.options, opening.device, opening.dtype, None)
    try:
        session = _open(path, provider, _session_options(opening.options, opening.threads), provided)
    except _refusals() as error:
        raise RuntimeError(str(error)) from error
    lost = lost_provider(provider, session)
    if lost:
        raise Unavailable(f"ONNX Runtime opened {path.name} with {lost}; {_INSTALL}")
    names, outputs = [value.name for value in session.get_inputs()], _outputs(session)
    run_bound = _runner(session, opening.device)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        bound = _bound(session, names, tensors, outputs)
        run_bound(bound.binding)
        return bound.results

    return run


BACKEND = Backend(
    name="onnxruntime",
    summary="ONNX Runtime: exported by torch.onnx, inputs and outputs bound in place",
    build=_build,
    options=Options,
    requires=(TORCH, Requirement("onnxruntime", _INSTALL), Requirement("onnxscript", _INSTALL)),
    dtypes=("fp32", "tf32", "fp16", "bf16"),
    choices=(
        Choice(Options(), devices=("cpu",), dtypes=("fp32",)),
        Choice(Options(), devices=("cuda",)),
        Choice(Options(int8=True), devices=("cpu",), suite="full", dtypes=("fp32",)),
        Choice(Options(cuda_graph=True), devices=("cuda",), dtypes=("fp32", "bf16")),
        Choice(Options(provider="tensorrt"), devices=("cuda",), dtypes=("bf16",)),
    ),
    really_ran="the session's first provider is the one asked for, and every node is placed on it",
    keeps_module=False,
    quantises=_quantises,
    caches=True,
    weight_copies=3.0,
    host_gap=_host_gap,
    objection=_objection,
    form=ArtifactFormat(
        name="onnx",
        summary="ONNX (.onnx), the weights of all its models in one file beside them",
        loads_in="any ONNX Runtime",
        write=_write,
        check=check_model,
        read=_read,
    ),
)
