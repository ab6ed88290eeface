"""What a sweep will run: defaults of a host, what narrows and widens them, and what makes two records comparable."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import GPU_HOST, HOST

from bakeoff.machine import host, paths
from bakeoff.machine.host import Host
from bakeoff.machine.identity import Machine
from bakeoff.models import component_names, resolve_component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import USER_CODE
from bakeoff.models.types import DEVICES
from bakeoff.plan import rows
from bakeoff.plan.dry_run import estimate
from bakeoff.plan.history import history_of
from bakeoff.plan.plan import Plan, checkpoint_hash, make_plan
from bakeoff.plan.request import Request, with_deadline
from bakeoff.plan.rows import reference_folder
from bakeoff.record.policy import Policy
from bakeoff.report.pages import plan
from bakeoff.report.render import terminal
from bakeoff.variant import parse_variant

TWO = ("eager", "inductor")


SEARCHING = (
    "tensorrt", "tensorrt-aot[optimization_level=5]", "inductor[mode=max-autotune]", "aoti[max_autotune]",
    "onnxruntime[provider=tensorrt]",
)  # fmt: skip
USUAL = ("inductor[freezing]", "aoti", "onnxruntime")
AMX_HOST = replace(HOST, cpu_flags=("avx2", "avx512f", "amx_bf16"))
Pretend = Callable[[Host], None]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Makes this host another one, with a compiler and room."""
    host.read_versions()  # kept for the process, so with the real compiler
    monkeypatch.setattr(host, "available_bytes", lambda _device: 64 << 30)
    monkeypatch.setattr(host, "usable_cores", lambda: 4)
    monkeypatch.setenv("CXX", "sh")  # some program that exists
    version = host._version
    monkeypatch.setattr(host, "_version", lambda name: version(name).removesuffix("+cpu"))  # as on a GPU's host
    return lambda pretended: monkeypatch.setattr(host, "read_host", lambda: pretended)


@pytest.fixture
def cpu(pretend: Pretend) -> None:
    """A host without a GPU and without bf16 instructions."""
    pretend(HOST)


def variants(plan: Plan) -> list[str]:
    return [str(entry.variant) for entry in plan.rows]


def planned(**asked: Any) -> list[str]:
    return variants(make_plan(Request(**{"component": "toy", "backends": TWO, **asked})))


ON_CPU = (
    "eager", "cudagraph", "inductor", "inductor[freezing]", "aoti", "tensorrt", "tensorrt-aot", "openvino",
    "onnxruntime", "int8+inductor", "modelopt+tensorrt-aot[cudagraphs]",
)  # fmt: skip
BF16_ON_CUDA = (
    "eager", "eager[channels_last]", "cudagraph", "cudagraph[channels_last]",
    "inductor[mode=reduce-overhead,freezing]", "inductor[mode=max-autotune,freezing]",
    "inductor[mode=max-autotune-no-cudagraphs,freezing,graph]", "aoti", "aoti[graph]", "aoti[freezing,graph]",
    "tensorrt", "tensorrt-aot", "tensorrt-aot[cudagraphs]", "tensorrt-aot[graph]",
    "int8+inductor[mode=reduce-overhead]", "fp8[kind=per-row]+inductor[mode=max-autotune]",
    "modelopt+tensorrt-aot[cudagraphs]", "attention+inductor[mode=reduce-overhead,freezing]",
    "attention[kind=cudnn]+inductor[mode=reduce-overhead,freezing]",
)  # fmt: skip
ON_BLACKWELL = (
    "mx+inductor[mode=max-autotune]", "mx[kind=nvfp4]+inductor[mode=max-autotune]",
    "modelopt[kind=nvfp4]+tensorrt-aot[cudagraphs]",
)  # fmt: skip
QUICK_ON_CUDA = ("eager", "cudagraph", "inductor[mode=reduce-overhead,freezing]", "tensorrt-aot")


@pytest.mark.usefixtures("cpu")
class TestDefaults:
    def test_cpu_without_bf16(self) -> None:
        """What is meant for bf16 is taken in fp32 where the CPU would only emulate bf16."""
        assert planned(backends=()) == [f"toy:tiny.world/{backend}/fp32@cpu" for backend in ON_CPU]

    def test_cpu_with_bf16(self, pretend: Pretend) -> None:
        """All but ONNX Runtime, which has no kernels for it."""
        pretend(AMX_HOST)
        assert planned(backends=()) == [
            *(f"toy:tiny.world/{backend}/fp32@cpu" for backend in ("eager", "onnxruntime")),
            *(f"toy:tiny.world/{backend}/bf16@cpu" for backend in ON_CPU if backend != "onnxruntime"),
        ]

    def test_cuda(self, pretend: Pretend) -> None:
        pretend(GPU_HOST)
        assert planned(backends=()) == [
            f"toy:small.world/{backend}/{dtype}@cuda"
            for dtype, backends in (
                ("fp32", ("eager",)),
                ("tf32", ("eager",)),
                ("bf16", BF16_ON_CUDA),
                ("fp16", ("tensorrt-aot", "onnxruntime[cuda_graph]")),
            )
            for backend in backends
        ]
        assert variants(make_plan(Request("toy", backends=TWO, device="cpu")))[0] == "toy:tiny.world/eager/fp32@cpu"

    @pytest.mark.parametrize("component", ["wm", "image", "audio", "matrix-vae", "matrix-wm"])
    def test_about_eighteen_rows_a_workload_and_compilers_in_16_bits_on_cuda(
        self, component: str, pretend: Pretend
    ) -> None:
        """Quantisers of linear layers, and layouts of convolutions, only where the component has such layers."""
        pretend(GPU_HOST)
        plan = make_plan(Request(component))
        assert 18 <= len(plan.rows) / len({row.subject for row in plan.rows}) <= 20
        for row in plan.rows:
            assert row.variant.dtype in ("bf16", "fp16") or row.variant.backend == "eager"
        layers = resolve_component(component).layers
        found = {row.variant.backend for row in plan.rows}
        assert any(name.startswith(("int8", "fp8")) for name in found) is ("linear" in layers)
        assert ("eager[channels_last]" in found) is any(layer.startswith("conv") for layer in layers)
        attending = [name for name in found if name.startswith("attention")]
        assert len(attending) == 2 * ("attention" in layers)
        pretend(replace(GPU_HOST, gpus=({**GPU_HOST.gpus[0], "compute_capability": "10.0"},)))
        more = {row.variant.backend for row in make_plan(Request(component)).rows} - found
        assert more == set(ON_BLACKWELL if "linear" in layers else ())

    def test_what_a_gpu_cannot_compute_is_named_only_where_it_is_asked_for(self, pretend: Pretend) -> None:
        pretend(GPU_HOST)
        bf16 = [name.split("/")[1] for name in planned(backends=("mx",), dtypes=("bf16",))]
        assert bf16 == [name for name in ON_BLACKWELL if name.startswith("mx")]
        assert "toy:small.world/mx+inductor[mode=max-autotune]/bf16@cuda" in planned(backends=(), suite="full")

    @pytest.mark.parametrize(("capability", "half"), [("7.5", "fp16"), ("8.0", "bf16"), ("10.0", "bf16")])
    def test_a_gpu_without_bf16_gets_fp16(self, capability: str, half: str, pretend: Pretend) -> None:
        pretend(replace(GPU_HOST, gpus=({**GPU_HOST.gpus[0], "compute_capability": capability},)))
        dtypes = {parse_variant(name).dtype for name in planned(backends=("inductor", "cudagraph"))}
        assert dtypes == {half}

    @pytest.mark.parametrize("component", component_names())
    @pytest.mark.parametrize("device", DEVICES)
    def test_every_component_has_defaults_on_every_device(self, component: str, device: str, pretend: Pretend) -> None:
        pretend(GPU_HOST if device == "cuda" else HOST)
        plan = make_plan(Request(component, device=device))
        spec = resolve_component(component)
        assert {entry.variant.preset for entry in plan.rows} == {spec.default_preset[device]}
        assert {entry.variant.workload for entry in plan.rows} == set(spec.default_workloads[device])
        assert {entry.variant.device for entry in plan.rows} == {device}
        for text in variants(plan):
            assert str(parse_variant(text)) == text


@pytest.mark.usefixtures("cpu")
class TestQuickSuite:
    def test_cuda(self, pretend: Pretend) -> None:
        pretend(GPU_HOST)
        names = planned(backends=(), suite="quick")
        assert names == [f"toy:small.world/{backend}/bf16@cuda" for backend in QUICK_ON_CUDA]
        assert set(names) < set(planned(backends=())) < set(planned(backends=(), suite="full"))

    @pytest.mark.parametrize(("known", "dtype"), [(HOST, "fp32"), (AMX_HOST, "bf16")])
    def test_cpu(self, known: Host, dtype: str, pretend: Pretend) -> None:
        pretend(known)
        names = planned(backends=(), suite="quick")
        assert names == [f"toy:tiny.world/{name}/{dtype}@cpu" for name in ("eager", "inductor[freezing]", "aoti")]
        assert set(names) < set(planned(backends=()))

    @pytest.mark.parametrize(
        ("named", "taken"), [("inductor", "inductor[freezing]"), ("openvino", "openvino"), ("int8-static", "int8-stat")]
    )
    def test_a_named_backend_without_options_there_has_those_of_a_larger_suite(self, named: str, taken: str) -> None:
        (name,) = planned(backends=(named,), suite="quick")
        assert parse_variant(name).backend.startswith(taken)


@pytest.mark.usefixtures("cpu")
class TestNarrowing:
    def test_workload(self) -> None:
        assert planned(workloads=("sound", "world"), backends=("eager",)) == [
            "toy:tiny.sound/eager/fp32@cpu",
            "toy:tiny.world/eager/fp32@cpu",
        ]

    @pytest.mark.parametrize(
        ("written", "uses"),
        [
            ("inductor", ["inductor", "inductor[freezing]"]),
            ("int8", ["int8+inductor"]),
            ("int8-static", ["int8-static+inductor[freezing]"]),
            ("inductor[]", ["inductor"]),
            ("inductor[freezing]", ["inductor[freezing]"]),
            ("inductor[freezing=true]", ["inductor[freezing]"]),
            ("inductor[freezing=false]", ["inductor"]),
            ("inductor[freezing,mode=max-autotune]", ["inductor[mode=max-autotune,freezing]"]),
            ("int8+inductor[freezing]", ["int8+inductor[freezing]"]),
            ("int8+inductor", ["int8+inductor"]),
            ("canaries:STORED", ["stored"]),
            ("int8+bakeoff.backends.inductor:BACKEND[freezing]", ["int8+inductor[freezing]"]),
        ],
    )
    def test_backends_as_written(self, written: str, uses: list[str]) -> None:
        """A bare name stands for its choices, a bracket for exactly that; options print in the declared order."""
        assert planned(backends=(written,)) == [f"toy:tiny.world/{use}/fp32@cpu" for use in uses]

    def test_what_is_asked_twice_runs_once(self) -> None:
        names = planned(backends=("eager", "eager", "inductor", "inductor[freezing]"), dtypes=("fp32", "fp32"))
        assert len(names) == len(set(names)) == 3

    @pytest.mark.parametrize("written", ["eager+eager", "inductor+eager", "eager+int8[]", "int8[]"])
    def test_what_can_never_run_is_refused(self, written: str) -> None:
        with pytest.raises(BakeoffError) as error:
            planned(backends=("eager", written))
        assert error.value.code == "not-composable"

    def test_two_backends_of_one_name_are_refused(self) -> None:
        with pytest.raises(BakeoffError, match="nan") as error:
            planned(backends=("canaries:NAN", "canaries:OTHER_NAN"))
        assert error.value.code == "not-composable"


@pytest.mark.usefixtures("cpu")
class TestFullSuite:
    def test_widens_all_but_the_preset(self) -> None:
        names = planned(suite="full", backends=())
        found = [parse_variant(name) for name in names]
        assert {variant.preset for variant in found} == {"tiny"}
        assert {variant.workload for variant in found} == {"world", "picture", "sound", "stream"}
        assert {variant.dtype for variant in found} == {"fp32", "bf16"}
        everything = {variant.backend for variant in found}
        assert everything >= {"eager", "inductor[mode=max-autotune,freezing]", "aoti[freezing]", "onnxruntime[int8]"}
        assert everything >= {"int8+aoti", "int8[kind=weight-only]+inductor", "fp8[kind=per-row]+inductor"}
        assert set(planned(backends=())) < set(names)

    @pytest.mark.parametrize(("component", "taken"), [("wm", False), ("image", True), ("audio", False), ("toy", True)])
    def test_options_for_some_layers_are_taken_where_a_component_has_them(self, component: str, taken: bool) -> None:
        """int8-static is for two-dimensional convolutions; named, it is taken for any component."""
        found = {parse_variant(name).backend for name in planned(component=component, suite="full", backends=())}
        assert ("int8-static+inductor[freezing]" in found) is taken
        named = planned(component=component, suite="full", backends=("int8-static",))
        assert {parse_variant(name).backend for name in named} == {"int8-static+inductor[freezing]"}


@pytest.mark.usefixtures("cpu")
class TestPrecheck:
    """What is known without running anything."""

    def one(self, backend: str, **asked: Any) -> tuple[str, str] | None:
        (entry,) = make_plan(Request("toy", backends=(backend,), **{"dtypes": ("fp32",), **asked})).rows
        return (entry.precheck.status, entry.precheck.reason) if entry.precheck else None

    def test_unsupported_dtype(self) -> None:
        assert self.one("canaries:BF16_ONLY") == ("unsupported", "bf16-only supports bf16, not fp32")

    def test_missing_library_comes_first(self) -> None:
        status, reason = self.one("canaries:MISSING_LIBRARY") or ("", "")
        assert status == "unavailable"
        assert reason == "no_such_module_anywhere is not installed; pip install no-such-thing"

    def test_missing_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CXX")
        status, reason = self.one("inductor[freezing]") or ("", "")
        assert status == "unavailable"
        assert "install g++" in reason

    def test_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(host, "available_bytes", lambda _device: 100 << 20)
        status, reason = self.one("eager") or ("", "")
        assert status == "oom"
        assert reason.startswith("needs an estimated 1024 MiB, 100 MiB are free")

    def test_memory_grows_with_batch_and_copies(self) -> None:
        def estimate(backend: str, batch: int = 1, dtype: str = "fp32") -> int:
            (entry,) = make_plan(
                Request("wm", ("200m",), ("step",), (backend,), (dtype,), batches=(batch,), device="cpu")
            ).rows
            return entry.memory.device

        weights = resolve_component("wm").preset("200m").parameters * 4
        assert estimate("eager") > weights
        assert estimate("eager", batch=2) > estimate("eager")
        assert estimate("inductor[]") - estimate("eager") == weights  # two copies of the weights
        assert estimate("eager", dtype="bf16") == pytest.approx(estimate("eager") + weights / 2, rel=1e-2)  # fp32 first

    def test_a_build_that_searches_kernels_has_a_longer_one(self) -> None:
        policy = Policy()
        rows = make_plan(Request("toy", backends=(*SEARCHING, *USUAL), dtypes=("fp32",), device="cpu")).rows
        assert {str(row.variant.backends[0]): row.build_deadline_s for row in rows} == {
            **dict.fromkeys(SEARCHING, policy.large_build_deadline_s),
            **dict.fromkeys(USUAL, policy.build_deadline_s),
        }

    def test_a_deadline_is_for_every_size(self) -> None:
        policy = with_deadline(Policy(min_s=2.0), 3000.0)
        for preset, backend in (("tiny", "eager"), ("1b", "eager"), ("tiny", "tensorrt[]")):
            request = Request("wm", (preset,), ("step",), (backend,), ("fp32",), "cpu", policy=policy)
            assert make_plan(request).rows[0].build_deadline_s == 3000.0
        assert replace(policy, build_deadline_s=600.0, large_build_deadline_s=1200.0) == Policy(min_s=2.0)

    @pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 0.0, 0.5, 86_401.0])
    def test_an_impossible_deadline_is_refused(self, seconds: float) -> None:
        with pytest.raises(BakeoffError, match=f"--row-timeout {seconds:g}: give 1 to 86400 seconds") as refused:
            with_deadline(Policy(), seconds)
        assert refused.value.code == "bad-option"


@pytest.mark.usefixtures("cpu")
class TestIdentity:
    def ids(self, **asked: Any) -> list[str]:
        return [entry.config_id for entry in make_plan(Request("toy", backends=("eager",), **asked)).rows]

    @pytest.mark.parametrize(
        "changed",
        [
            {"batches": (2,)},
            {"weight_seed": 1},
            {"input_seed": 1},
            {"threads": 1},
            {"presets": ("small",)},
            {"workloads": ("sound",)},
            {"dtypes": ("bf16",)},
        ],
        ids=lambda changed: next(iter(changed)),
    )
    def test_whatever_changes_a_number_changes_it(self, changed: dict[str, Any]) -> None:
        assert set(self.ids(**changed)).isdisjoint(self.ids())

    def test_two_checkpoints_of_one_name_and_size_are_told_apart(self, tmp_path: Path) -> None:
        toy = resolve_component("toy")
        found = []
        for content in (b"x", b"y"):
            path = tmp_path / content.decode() / "model.safetensors"
            path.parent.mkdir()
            path.write_bytes(content)
            (row,) = make_plan(Request("toy", backends=("inductor[]",), dtypes=("fp32",), checkpoint=str(path))).rows
            found.append([row.config_id, row.cache_folder, reference_folder(row.subject, toy), row.checkpoint])
        assert all(mine != other for mine, other in zip(*found, strict=True))

    def test_copies_of_one_checkpoint_are_the_same_weights(self, tmp_path: Path) -> None:
        toy = resolve_component("toy")
        found = []
        for name in ("step-9.safetensors", "best.safetensors"):
            (tmp_path / name).write_bytes(b"the same")
            request = Request("toy", backends=("inductor[]",), dtypes=("fp32",), checkpoint=str(tmp_path / name))
            (row,) = make_plan(request).rows
            found.append((row.config_id, row.cache_folder, reference_folder(row.subject, toy)))
            assert row.checkpoint == f"{name}, sha256 {hashlib.sha256(b'the same').hexdigest()[:12]}"
        assert found[0] == found[1]

    def test_a_checkpoint_is_read_once_until_it_changes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "w.safetensors"
        path.write_bytes(b"x")
        read = []
        original = hashlib.file_digest

        def reading(file: Any, kind: str) -> Any:
            read.append(kind)
            return original(file, kind)

        monkeypatch.setattr(hashlib, "file_digest", reading)
        first = checkpoint_hash(str(path))
        assert checkpoint_hash(str(path)) == first
        assert read == ["sha256"]
        path.write_bytes(b"y")
        assert checkpoint_hash(str(path)) != first

    def test_a_file_larger_than_memory_is_refused_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "w.safetensors"
        with path.open("wb") as file:
            file.truncate(1 << 42)
        with pytest.raises(BakeoffError) as refused:
            checkpoint_hash(str(path))
        assert refused.value.code == "bad-checkpoint"

    def test_key_is_of_the_plan_policy_host_versions_and_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = [
            make_plan(Request("toy", backends=TWO)).key,
            make_plan(Request("toy", backends=("eager",))).key,
            make_plan(Request("toy", backends=TWO, policy=Policy(min_s=1.0))).key,
            make_plan(Request("toy", backends=TWO, batches=(2,))).key,
        ]
        monkeypatch.setattr(host, "read_versions", lambda *_: {"torch": "9.9"})
        keys.append(make_plan(Request("toy", backends=TWO)).key)
        monkeypatch.setattr(paths, "commit", lambda: ("f00d", False))
        keys.append(make_plan(Request("toy", backends=TWO)).key)
        monkeypatch.setattr(host, "read_host", lambda: replace(HOST, cores=2))
        keys.append(make_plan(Request("toy", backends=TWO)).key)
        assert len(set(keys)) == len(keys)

    def test_a_cache_is_of_a_variant_its_configuration_the_versions_and_the_class_of_machine(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def folder(**asked: Any) -> Path:
            request = Request("toy", backends=("inductor[]",), dtypes=("fp32",), **asked)
            return make_plan(request).rows[0].cache_folder

        folders = [folder(), folder(batches=(2,))]
        monkeypatch.setattr(host, "read_versions", lambda *_: {"torch": "9.9"})
        folders.append(folder())
        monkeypatch.setattr(rows, "this_machine", lambda _device: Machine("id", "another class", "name"))
        folders.append(folder())
        assert len(set(folders)) == len(folders)

    def test_a_reference_is_shared_by_variants_and_not_by_subjects(self) -> None:
        toy = resolve_component("toy")

        def folders(**asked: Any) -> set[Path]:
            return {
                reference_folder(entry.subject, toy) for entry in make_plan(Request("toy", backends=TWO, **asked)).rows
            }

        base = folders()
        assert len(base) == 1
        assert folders(dtypes=("bf16",)) == base
        for changed in (
            {"batches": (2,)}, {"weight_seed": 1}, {"input_seed": 1}, {"threads": 1}, {"presets": ("small",)},
        ):  # fmt: skip
            assert folders(**changed).isdisjoint(base)
        assert all(folder.is_relative_to(paths.cache_folder()) for folder in base)


@pytest.mark.usefixtures("cpu")
class TestRefused:
    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"component": "nosuch"}, "no component 'nosuch'; known: wm"),
            ({"component": "wm:1b"}, "no component 'wm:1b'; for a preset of wm give --preset 1b"),
            ({"component": "toy:tiny"}, "no component 'toy:tiny'; for a preset of toy give --preset tiny"),
            ({"backends": ("eager+",)}, "no backend ''"),
            ({"backends": ("inductor]",)}, r"no backend 'inductor\]'"),
            ({"backends": ("inductor[freezing]]",)}, r"inductor has no option 'freezing\]'"),
            ({"backends": ("../x:B",)}, r"no backend '\.\./x:B'"),
            ({"device": "tpu"}, "no device 'tpu'; did you mean cpu; known: cpu, cuda"),
            ({"batches": (-3,)}, "--batch -3"),
            ({"threads": 4096}, "--threads 4096: give 0 for all cores, or 1 to 1024"),
            ({"checkpoint": "/"}, "--checkpoint /: not a file"),
        ],
    )
    def test_request(self, asked: dict[str, Any], says: str) -> None:
        with pytest.raises(BakeoffError, match=says):
            make_plan(Request(**{"component": "toy", **asked}))


def dry_run(request: Request) -> str:
    return terminal.render(plan.document({"": estimate(make_plan(request), history_of(()))}))


@pytest.mark.usefixtures("cpu")
class TestProcesses:
    def test_each_takes_every_variant_before_the_next(self) -> None:
        plan = make_plan(Request("toy", backends=("eager", "inductor[]"), dtypes=("fp32",), processes=2))
        assert [row.label.partition("/")[2] for row in plan.rows] == [
            "eager/fp32@cpu, process 1 of 2",
            "inductor/fp32@cpu, process 1 of 2",
            "eager/fp32@cpu, process 2 of 2",
            "inductor/fp32@cpu, process 2 of 2",
        ]

    def test_short_memory_does_not_change_the_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = [make_plan(Request("toy", backends=TWO)).key]
        monkeypatch.setattr(host, "available_bytes", lambda _device: 0)
        keys.append(make_plan(Request("toy", backends=TWO)).key)
        assert keys[0] == keys[1] != make_plan(Request("toy", backends=TWO, processes=2)).key

    def test_dry_run_counts_them(self) -> None:
        request = Request("toy", backends=("eager", "inductor[]"), dtypes=("fp32",), final_s=0.0)
        once = estimate(make_plan(request), history_of(()))
        often = estimate(make_plan(replace(request, processes=2)), history_of(()))
        assert len(often.lines) == 4
        eager, inductor = (line.seconds for line in once.lines)
        assert often.seconds == pytest.approx(2 * (eager + inductor))
        text = terminal.render(plan.document({"": often}))
        assert "4 rows, about" in text
        assert re.search(r"inductor/fp32@cpu +2 ", text)
        assert "process" not in terminal.render(plan.document({"": once}))


def test_own_code_is_found_by_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The working folder is told to a worker if the request names own code, and only then; never before libraries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/somewhere")

    def places(*backends: str) -> tuple[str, str | None]:
        (row,) = make_plan(Request("toy", backends=backends, dtypes=("fp32",))).rows
        return row.environment["PYTHONPATH"], row.environment.get(USER_CODE)

    assert places("canaries:STORED") == ("/somewhere", str(tmp_path))
    assert places("eager") == ("/somewhere", None)
