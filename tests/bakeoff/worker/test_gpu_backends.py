"""Every backend for CUDA sweeps a toy and, where it has an artifact format, exports one; a CPU sweeps one of them.

What the host lacks is skipped with the lab's own reason; any other unsupported row is a failure, since each is chosen
so that its backend can do it.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from artifacts import exported
from lab import FAST, Recorder, sweep

from bakeoff.artifact.export import verify
from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.tensorrt_rtx.options import TARGETS, capability_of
from bakeoff.machine import host
from bakeoff.models.options import options_of
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request, request_of
from bakeoff.variant import parse_variant

pytest.importorskip("torch", reason="rows are computed by torch")

ON_CUDA = (
    "eager/bf16",
    "eager[channels_last]/bf16",
    "cudagraph/bf16",
    "cudagraph[channels_last]/bf16",
    "inductor/bf16",
    "inductor[freezing]/bf16",
    "inductor[mode=reduce-overhead]/bf16",
    "inductor[mode=max-autotune]/bf16",
    "inductor[mode=max-autotune-no-cudagraphs,freezing]/bf16",
    "inductor[graph]/bf16",
    "inductor[mode=max-autotune-no-cudagraphs,freezing,graph]/bf16",
    "aoti/bf16",
    "aoti[freezing]/bf16",
    "aoti[graph]/bf16",
    "torch.export/bf16",
    "tensorrt/bf16",
    "tensorrt[cudagraphs]/bf16",
    "tensorrt[freezing=false]/bf16",
    "tensorrt-aot/bf16",
    "tensorrt-aot[cudagraphs]/bf16",
    "tensorrt-aot[graph]/bf16",
    "tensorrt-aot[require_full_compilation=false]/bf16",
    "tensorrt-rtx/fp16",
    "tensorrt-rtx[cuda_graph]/fp16",
    "onnxruntime/fp32",
    "onnxruntime[cuda_graph]/fp32",
    "onnxruntime[provider=tensorrt]/tf32",
    "int8[least=0]+inductor/bf16",
    "int8[kind=weight-only,least=0]+inductor/bf16",
    "fp8[least=0]+inductor/bf16",
    "fp8[kind=per-row,least=0]+inductor/bf16",
    "fp8[kind=per-tensor,least=0]+inductor[mode=reduce-overhead]/bf16",
    "fp8[kind=per-row,least=0]+inductor[graph]/bf16",
    "modelopt[least=0]+tensorrt/bf16",
    "modelopt[least=0]+tensorrt-aot/bf16",
    "mx[least=0]+inductor/bf16",
    "mx[kind=nvfp4,least=0]+inductor/bf16",
    "attention[kind=math]+eager/bf16",
    "attention[kind=flash]+inductor/bf16",
    "attention[kind=efficient]+inductor/bf16",
    "attention[kind=cudnn]+inductor/bf16",
    "attention[kind=fa3]+inductor/bf16",
    "attention[kind=fa4]+inductor/bf16",
    "fp16-accumulation+cudagraph/fp16",
)
EXPORTED_ON_CUDA = (
    "aoti/bf16", "aoti[graph]/bf16", "torch.export/bf16", "tensorrt-aot/bf16", "tensorrt-aot[graph]/bf16",
    "tensorrt-rtx/fp16", "onnxruntime/fp32",
)  # fmt: skip
ON_CPU = ("int8[least=0]+eager/fp32",)
QUANTISERS = ("int8", "fp8", "modelopt", "mx")
PATIENT = replace(FAST, build_deadline_s=180.0, large_build_deadline_s=180.0)
"""TensorRT's builder and autotuning take longer than a compiler for CPUs."""
QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

gpu = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not host.read_host().gpus, reason="no NVIDIA GPU answers NVML here"),
]


def cases(on_cuda: tuple[str, ...], on_cpu: tuple[str, ...] = ()) -> list[object]:
    """Variants of the toy: those for CUDA are marked `gpu`."""
    found: list[object] = [pytest.param(f"toy:small.world/{text}@cuda", marks=gpu) for text in on_cuda]
    return [*found, *(f"toy:tiny.world/{text}@cpu" for text in on_cpu)]


def skip_where_unavailable(variant: str) -> Request:
    """The request for a variant, if this host has what its backends need."""
    request = request_of(parse_variant(variant))
    (row,) = make_plan(request).rows
    if row.never_runs is not None and row.never_runs.status == "unavailable":
        pytest.skip(row.never_runs.reason)
    found = str(host.read_host().gpus[0]["compute_capability"]) if row.variant.device == "cuda" else ""
    if "tensorrt-rtx" in variant and found not in map(capability_of, TARGETS):
        pytest.skip(f"TensorRT for RTX has no engines for compute capability {found}")
    return request


@pytest.mark.parametrize("variant", cases(ON_CUDA, ON_CPU))
def test_a_swept_row_is_ok_and_proves_what_ran(variant: str, tmp_path: Path) -> None:
    request = skip_where_unavailable(variant)
    swept = sweep(replace(request, policy=PATIENT), tmp_path)
    (stored,) = swept.done.stored
    measurement = stored.record.measurement
    if measurement.status == "unavailable":  # a library that is there but does not load
        pytest.skip(measurement.reason)
    if measurement.status == "unsupported" and "compute capability" in measurement.reason:
        pytest.skip(measurement.reason)  # 4-bit formats need a newer GPU than the others
    assert (measurement.status, measurement.reason) == ("ok", "")
    assert measurement.parity is not None
    assert measurement.parity.passed
    assert measurement.latency is not None
    assert measurement.proof is not None
    assert measurement.proof.fell_back == ""
    quantises = any(use.name in QUANTISERS for use in stored.record.variant.backends)
    assert bool(stored.record.quantisation) == quantises
    if quantises:
        assert measurement.proof.quantised
    assert swept.left_alive == ()


@QUIET
@pytest.mark.parametrize("variant", cases(EXPORTED_ON_CUDA))
def test_an_exported_artifact_is_verified_in_a_fresh_process(variant: str, tmp_path: Path) -> None:
    skip_where_unavailable(variant)
    made = exported(variant, tmp_path / "artifact", tmp_path / "runs")
    assert made.manifest.variant == variant
    again = verify(made.folder, made.manifest, False, Recorder())
    assert again.mismatches == ()
    assert again.checked
    assert all(one.passed for one in again.checked)


def test_every_backend_for_cuda_has_a_row_and_every_format_an_artifact() -> None:
    usable = [resolve_backend(name) for name in backend_names() if "cuda" in resolve_backend(name).devices]
    swept, written = (
        {use.name for text in texts for use in parse_variant(f"toy:small.world/{text}@cuda").backends}
        for texts in (ON_CUDA, EXPORTED_ON_CUDA)
    )
    assert swept == {backend.name for backend in usable}
    assert written == {backend.name for backend in usable if backend.artifact is not None}


@pytest.mark.parametrize("text", sorted({*ON_CUDA, *EXPORTED_ON_CUDA}))
def test_a_row_for_cuda_is_one_that_its_backends_support(text: str) -> None:
    """Options and dtypes that a backend refuses by itself would be found on a GPU only."""
    variant = parse_variant(f"toy:small.world/{text}@cuda")
    for use in variant.backends:
        backend = resolve_backend(use.name)
        assert backend.unsupported(options_of(backend, dict(use.options)), "cuda", variant.dtype) is None
