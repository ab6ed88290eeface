"""The table of steps, most important first. Nothing else says what is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

GPU_TESTS = "tests/bakeoff/worker/test_gpu.py"
GPU_BACKEND_TESTS = "tests/bakeoff/worker/test_gpu_backends.py"
GPU_LIBRARY_TESTS = (
    "tests/backends/test_feeding.py",
    "tests/backends/test_inductor.py",
    "tests/backends/test_onnxruntime_cuda.py",
    "tests/backends/test_tensorrt_rtx_gpu.py",
    "tests/backends/test_torch_internals.py",
    "tests/backends/test_tracing.py",
    "tests/bakeoff/profile/test_device_clock.py",
    "tests/bakeoff/worker/pipeline/test_serve_gpu.py",
    "tests/bakeoff/worker/pipeline/test_traced.py",
)
_QUANTISED = ("wm:1b.step", "wm:1b.single", "matrix-wm:universal.denoise")
"""Subjects with linear layers; torchao quantises no others."""
_VIDEO = "matrix-vae:full.steady3"
_ATTENDING = (*_QUANTISED, _VIDEO)
SUBJECTS = (*_QUANTISED, "image:128x.decode", "audio:cod.decode", _VIDEO)
"""As in a variant: component:preset.workload."""
_CAPTURED = "inductor[mode=reduce-overhead]/bf16"
PIPELINES = {
    "owl:1b": ("eager", "best", f"wm={_CAPTURED},image={_CAPTURED},audio={_CAPTURED}"),
    "matrix:universal": ("eager", "best", f"wm={_CAPTURED},decoder={_CAPTURED}"),
}
"""pipeline:preset to the mixes that take turns."""
FAST = "fast"
"""The step that runs the fast sequence (`order.py`)."""
_SMOKE_SUBJECTS = ("toy:small.world", "wm:tiny.step")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: commands that pass or fail together, and of which a repetition does all or, for a sweep, the rest."""

    name: str
    kind: Literal["doctor", "fast", "smoke", "sweep", "pipeline", "export", "tests", "selftest"]
    subject: str = ""
    backends: tuple[str, ...] = ()
    """As a sweep's `--backends`; empty for a smoke test, which tries every backend."""
    dtypes: tuple[str, ...] = ("bf16",)
    tests: tuple[str, ...] = ()
    """pytest's arguments."""

    @property
    def component(self) -> str:
        return _component(self.subject)

    @property
    def preset(self) -> str:
        return self.subject.partition(":")[2].partition(".")[0]

    @property
    def workload(self) -> str:
        return self.subject.partition(".")[2]


@dataclass(frozen=True, slots=True)
class _Group:
    """Sweeps of the same backends, one for each subject."""

    name: str
    backends: tuple[str, ...]
    dtypes: tuple[str, ...] = ("bf16",)
    quantises: bool = False
    """Only for subjects with linear layers."""
    attends: bool = False
    """Only for subjects with attention."""


_GROUPS = (
    _Group("torch", ("eager", "cudagraph", "inductor[]", "inductor[mode=reduce-overhead]")),
    _Group(
        "captured",
        ("inductor[freezing,graph]", "inductor[mode=max-autotune-no-cudagraphs,freezing,graph]", "aoti[graph]"),
    ),
    _Group("tensorrt", ("tensorrt[]", "tensorrt[cudagraphs]")),
    _Group(
        "tensorrt-aot",
        (
            "tensorrt-aot[]",
            "tensorrt-aot[cudagraphs]",
            "tensorrt-aot[graph]",
            "tensorrt-aot[require_full_compilation=false]",
        ),
    ),
    _Group(
        "fp8",
        tuple(f"fp8[{kind}]+inductor[mode=reduce-overhead]" for kind in ("kind=per-row", "kind=per-tensor", "")),
        quantises=True,
    ),
    _Group(
        "fp8-autotune",
        tuple(f"fp8[{kind}]+inductor[mode=max-autotune]" for kind in ("kind=per-row", "kind=per-tensor", "")),
        quantises=True,
    ),
    _Group("fp8-tensorrt", ("modelopt[]+tensorrt-aot[cudagraphs]", "modelopt[]+tensorrt[cudagraphs]")),
    _Group("int8", ("int8[]+inductor[mode=reduce-overhead]",), quantises=True),
    _Group("aoti", ("aoti[]",)),
    _Group("onnxruntime", ("onnxruntime[]", "onnxruntime[cuda_graph]", "onnxruntime[provider=tensorrt]")),
    _Group("onnxruntime-fp16", ("onnxruntime[]", "onnxruntime[cuda_graph]"), ("fp16",)),
    _Group("baselines", ("eager", "inductor[]", "inductor[mode=reduce-overhead]"), ("fp32", "tf32")),
    _Group("autotune", ("inductor[mode=max-autotune]", "inductor[tuned,mode=reduce-overhead]", "aoti[max_autotune]")),
    _Group(
        "attention",
        tuple(
            f"attention[kind={kind}]+inductor[mode=reduce-overhead]" for kind in ("flash", "efficient", "cudnn", "math")
        ),
        attends=True,
    ),
    _Group(
        "mx", tuple(f"mx[kind={kind}]+inductor[mode=reduce-overhead]" for kind in ("mxfp8", "nvfp4")), quantises=True
    ),
    _Group(
        "tensorrt-onnx",
        ("examples/backends/tensorrt_onnx.py:BACKEND[]", "examples/backends/tensorrt_onnx.py:BACKEND[graph]"),
    ),
    _Group("fp16-accumulation", ("cudagraph", "fp16-accumulation+cudagraph"), ("fp16",)),
    _Group("tensorrt-unfrozen", ("tensorrt[freezing=false]", "tensorrt[cudagraphs,freezing=false]")),
)
_EXPORTED = {"aoti": "bf16", "tensorrt-aot": "bf16", "onnxruntime": "fp16", "torch.export": "bf16"}
"""The dtype of each artifact format's backend: ONNX Runtime lacks bf16 kernels for the decoders."""
_BACKEND_TESTS = {
    "swept": "swept and not (tensorrt or onnxruntime)",
    "swept-engines": "swept and (tensorrt or onnxruntime)",
    "exported": "exported",
}


def steps(subjects: Sequence[str] = ()) -> tuple[Step, ...]:
    """All steps in their order; `subjects` replace the published presets."""
    return (
        Step("doctor", "doctor"),
        Step(FAST, "fast"),
        *_smoke(),
        *_sweeps(subjects or SUBJECTS),
        *(() if subjects else _pipelines()),
        *_tests(),
        *_exports(subjects or SUBJECTS),
    )


def _smoke() -> Iterator[Step]:
    for subject in _SMOKE_SUBJECTS:
        yield Step(f"smoke-{_component(subject)}", "smoke", subject)


def _sweeps(subjects: Sequence[str]) -> Iterator[Step]:
    for group in _GROUPS:
        for subject in subjects:
            if subject not in SUBJECTS or _runs(group, subject):
                yield Step(f"{group.name}-{_label(subject)}", "sweep", subject, group.backends, group.dtypes)


def _pipelines() -> Iterator[Step]:
    """Whole frames, after the sweeps: `best` takes their records."""
    for subject, mixes in PIPELINES.items():
        yield Step(f"pipeline-{_component(subject)}", "pipeline", subject, mixes)


def _runs(group: _Group, subject: str) -> bool:
    """Whether a published subject has what the group's backends change."""
    return (not group.quantises or subject in _QUANTISED) and (not group.attends or subject in _ATTENDING)


def _tests() -> Iterator[Step]:
    """In pieces of minutes. The test that runs the selftest is left to the step `selftest`."""
    yield Step("gpu-tests", "tests", tests=("-m", "gpu and not alone", GPU_TESTS))
    yield Step("gpu-tests-libraries", "tests", tests=("-m", "gpu", *GPU_LIBRARY_TESTS))
    for part, named in _BACKEND_TESTS.items():
        yield Step(f"gpu-tests-{part}", "tests", tests=("-m", "gpu", "-k", named, GPU_BACKEND_TESTS))
    yield Step("gpu-tests-alone", "tests", tests=("-m", "gpu and alone", "-k", "not every_fault", GPU_TESTS))
    yield Step("selftest", "selftest")


def _exports(subjects: Sequence[str]) -> Iterator[Step]:
    """One artifact of each component and format: of its first subject."""
    for backend, dtype in _EXPORTED.items():
        for component, subject in _first_of_each(subjects).items():
            yield Step(f"export-{backend}-{component}", "export", subject, (backend,), (dtype,))


def _first_of_each(subjects: Sequence[str]) -> dict[str, str]:
    """Component to its first subject."""
    first: dict[str, str] = {}
    for subject in subjects:
        first.setdefault(_component(subject), subject)
    return first


def _component(subject: str) -> str:
    return subject.partition(":")[0]


def _label(subject: str) -> str:
    """The component, and the workload where the component has several subjects."""
    component = _component(subject)
    return f"{component}-{subject.partition('.')[2]}" if component == "wm" else component
