"""Checks every private name of torch that the project uses against the installed version."""

import inspect
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch", reason="the names are torch's")

import torch
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER

from bakeoff.backends import torch_internals
from bakeoff.backends.torch_internals import CompileActivity, snapshot

pytestmark = [
    LIBRARY_WARNINGS,
    NEEDS_COMPILER,
]

ROOT = Path(__file__).resolve().parents[2]
X = torch.randn(4, 8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.linear(x).sin() + 1,)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Compiler:
    """Inductor by the names of torch_internals."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings = settings or {}
        self.ids: list[str] = []
        self.code: list[object] = []
        self.captured = 0
        self.calls: dict[str, int] = {}

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        self.ids.append(torch_internals.compile_id())
        with torch_internals.generated_code() as modules:
            compiled = torch_internals.compile_with_inductor(graph, inputs, self.settings)
        self.code = list(modules)
        self.captured = torch_internals.captured_functions(modules)
        self.calls = dict(torch_internals.library_calls(modules))
        return compiled


def test_counts_a_graph_its_kernels_its_library_calls_and_its_cache_hit() -> None:
    module = Net()
    for hits in (0, 1):  # compiled, then taken from inductor's cache
        torch._dynamo.reset()
        compiler, before = Compiler(), snapshot()
        torch.compile(module, backend=compiler, fullgraph=True)(X)
        made = snapshot() - before
        assert (made.captured, made.graph_breaks, made.compiled, made.cache_hits) == (1, 0, 1, hits)
        assert made.kernels == 1
        assert made.vectorised_kernels <= made.kernels
        assert compiler.code, "code that this process loaded before is listed too"
        assert sum(compiler.calls.values()) == 1
        assert any("mm" in name or "linear" in name for name in compiler.calls)


class TestPartitionedGraphs:
    """With CUDA graphs, inductor moves the calls of a graph into functions. A CPU's operators never are, so the
    scheduler is made to take them for a GPU's (torch/_inductor/scheduler.py, should_partition)."""

    def code(self, monkeypatch: pytest.MonkeyPatch, inline: str = "") -> Compiler:
        """The net compiled; nodes whose operator has `inline` in its name stay outside the functions."""
        from torch._inductor.scheduler import Scheduler

        def reason(_self: Scheduler, node: Any) -> str | None:
            return "it stays" if inline and inline in str(getattr(node.node, "python_kernel_name", "")) else None

        monkeypatch.setattr(Scheduler, "should_partition", reason)
        torch._dynamo.reset()
        compiler, module = Compiler({"triton.cudagraphs": True}), Net()
        outputs = torch.compile(module, backend=compiler, fullgraph=True)(X)
        assert torch.allclose(outputs[0], module(X)[0], atol=1e-6)
        return compiler

    @pytest.mark.parametrize(("inline", "functions"), [("", 1), ("addmm", 1)])
    def test_calls_of_libraries_are_found_in_all_functions(
        self, inline: str, functions: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiler = self.code(monkeypatch, inline)
        (module,) = compiler.code
        source = Path(str(module.__file__)).read_text()  # type: ignore[attr-defined]
        assert source.count("def partition_") == compiler.captured == functions
        assert ("extern_kernels" in source.partition("class Runner")[0].partition("def partition_0")[2]) is not inline
        assert sum(compiler.calls.values()) == 1
        assert "addmm" in compiler.calls

    def test_a_cpus_operators_are_in_no_function(self) -> None:
        compiler = Compiler({"triton.cudagraphs": True})
        torch.compile(Net(), backend=compiler, fullgraph=True)(X)
        assert compiler.code
        assert compiler.captured == 0

    def test_text_and_comments_are_no_calls(self, tmp_path: Path) -> None:
        """Lines in the form of what PythonWrapperCodegen and TritonScheduling write for CUDA (2.11 and 2.13)."""
        path = tmp_path / "generated.py"
        path.write_text(
            "triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''\n"
            "# %mm : [num_users=1] = call_function[target=torch.ops.aten.mm.default](args = (%x, %y))\n"
            "def triton_poi_fused_add_0(in_ptr0):\n    aten.exp(in_ptr0)\n''', device_str='cuda')\n"
            "def partition_0(args):\n"
            "    # Topologically Sorted Source Nodes: [mm], Original ATen: aten.mm()\n"
            "    extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n"
            "    triton_poi_fused_add_0.run(buf0, 32, stream=stream0)\n"
            "    buf1 = torch.ops.aten._scaled_dot_product_cudnn_attention.default(buf0, buf0, buf0)\n"
            "    buf2 = extern_kernels.convolution(buf1, arg2_1, bias=None)\n"
            "    return (buf2, )\n"
            "class Runner:\n    def call(self, args):\n        aten.index_put_(args[0], [args[1]], args[2], False)\n"
        )
        found = torch_internals.library_calls([SimpleNamespace(__file__=str(path))])  # type: ignore[list-item]
        assert found == {"mm": 1, "convolution": 1, "aten._scaled_dot_product_cudnn_attention": 1, "aten.index_put_": 1}


def test_calls_of_a_package_for_cuda() -> None:
    """In the form that CppWrapperGpu writes (torch/_inductor/codegen/cpp_wrapper_gpu.py, 2.13:
    _write_wrapper_signature, _generate_kernel_call_helper; cpp_wrapper_cpu.py: generate_c_shim_extern_kernel_call,
    generate_fallback_kernel_with_runtime_lookup_aot)."""
    libraries, kernels = torch_internals.package_calls("""
template <typename in_ptr0_type_, typename kernels_type_>
static inline void call_triton_poi_fused_add_0(const in_ptr0_type_& in_ptr0, kernels_type_& kernels_) {
    /*
    async_compile.triton('triton_poi_fused_add_0', ...)
    */
    launchKernel(kernels_.triton_poi_fused_add_0, grid_0, 1, 1, 4, 0, kernel_args_, stream_);
}
void AOTInductorModel::_const_run_impl(std::vector<AtenTensorHandle>& output_handles) {}
void AOTInductorModel::run_impl(AtenTensorHandle* input_handles, DeviceStreamType stream) {
    AOTICudaStreamGuard stream_guard(stream, this->device_idx_);
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, &buf0_handle));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_addmm_out(buf0, bias, arg0_1, weight, 1L, 1L));
    call_triton_poi_fused_add_0(buf0, buf1, 32L, this->device_idx_, stream, kernels, this->cubin_dir_);
    call_triton_poi_fused_add_0(buf1, buf2, 32L, this->device_idx_, stream, kernels, this->cubin_dir_);
    call_triton_tem_fused_mm_1(buf2, buf3, this->device_idx_, stream, kernels, this->cubin_dir_);
    kernels.cutlass_fused_mm_2((const void*)buf3.data_ptr(), (void*)buf4.data_ptr(), stream);
    cpp_fused_arange_3((int64_t*)buf5.data_ptr());
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(proxy_executor, 0, 0, nullptr, 2, handles));
} // AOTInductorModel::run_impl
""")
    assert libraries == {"addmm_out": 1, "proxy_executor": 1}
    assert kernels == {
        "triton_poi_fused_add_0": 2,
        "triton_tem_fused_mm_1": 1,
        "cutlass_fused_mm_2": 1,
        "cpp_fused_arange_3": 1,
    }


def test_a_graph_break_is_counted() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    before = snapshot()
    torch.compile(broken, backend="eager")(X)
    made = snapshot() - before
    assert (made.captured, made.graph_breaks, made.compiled) == (2, 1, 0)


def test_counters_that_somebody_cleared_count_as_nothing() -> None:
    torch.compile(Net(), backend="eager")(X)
    before = snapshot()
    torch._dynamo.utils.counters.clear()
    assert before.captured
    assert snapshot() - before == CompileActivity()


def test_activities_add_up() -> None:
    assert CompileActivity(1, 2, 3, 4, 5, 6) + CompileActivity(compiled=1) == CompileActivity(1, 2, 4, 4, 5, 6)


def test_recompilations_are_told_by_their_compilation() -> None:
    compiler = Compiler()
    run = torch.compile(Net(), backend=compiler, dynamic=False)
    run(X)
    run(X[:2])
    assert len(set(compiler.ids)) == 2
    assert torch_internals.recompile_reasons(compiler.ids[:1]) == ()
    (reason,) = torch_internals.recompile_reasons(compiler.ids[1:])
    assert "4" in reason
    assert "2" in reason


def test_counters_by_group() -> None:
    torch.compile(Net(), backend="eager")(X)
    assert torch_internals.read_counters("stats")["stats.unique_graphs"] >= 1
    assert torch_internals.read_counters("no such group") == {}


def test_settings_hold_within_their_context_alone() -> None:
    from torch._inductor import config

    before = config.freezing
    with torch_internals.inductor_settings(freezing=not before):
        assert config.freezing is not before
    assert config.freezing is before


@pytest.mark.parametrize(
    ("mode", "settings"),
    [("default", {}), ("reduce-overhead", {"triton.cudagraphs"}), ("max-autotune", {"max_autotune"})],
)
def test_modes_stand_for_settings(mode: str, settings: set[str]) -> None:
    from torch._inductor import config

    found = torch_internals.inductor_mode(mode)
    assert set(settings) <= set(found)
    assert set(found) <= set(config.to_dict())


def test_the_settings_that_backends_use_exist() -> None:
    from torch._inductor import config

    used = ("freezing", "max_autotune", "cpp.enable_kernel_profile", "aot_inductor.package_constants_in_so")
    assert set(used) <= set(config.to_dict())


def test_the_function_that_occupies_a_gpu_exists() -> None:
    assert list(inspect.signature(torch.cuda._sleep).parameters) == ["cycles"]


def test_profiler_events_of_inductor_are_known_by_name() -> None:
    with torch_internals.inductor_settings(**{"cpp.enable_kernel_profile": True}):
        run = torch.compile(Net(), fullgraph=True)
        run(X)
    with torch_internals.profile_every_thread() as recorded:
        run(X)
    names = [event.name for event in recorded.function_events]
    assert sum(name.startswith(torch_internals.INDUCTOR_CALL) for name in names) == 1
    assert any(name.startswith(torch_internals.INDUCTOR_KERNELS) for name in names)
    enclosing = [name for name in names if name.startswith(torch_internals.WRAPPER_EVENTS)]
    assert any(name.startswith("Torch-Compiled Region") for name in enclosing)


def test_constants_are_folded() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            return x @ (self.weight * 2)

    graph = torch.export.export(Folded(), (X,)).module()
    torch_internals.fold_constants(graph)
    assert not [node for node in graph.graph.nodes if "aten.mul" in str(node.target)]
    assert torch.equal(graph(X), X @ torch.full((8, 8), 2.0))


def test_a_package_is_compiled_loaded_and_run(tmp_path: Path) -> None:
    module, path = Net(), tmp_path / "package.pt2"
    settings = {"aot_inductor.package_constants_in_so": False}
    torch_internals.compile_package(torch.export.export(module, (X,), strict=False), path, settings)
    package = torch_internals.load_package(path)
    assert {"AOTI_MACHINE"} <= set(package.metadata())
    assert "linear.weight" in package.constants()
    package.load_constants({name: module.get_parameter(name).detach() for name in package.constants()})
    assert torch.allclose(package.run([X])[0], module(X)[0], atol=1e-6)
    with zipfile.ZipFile(path) as archive:
        wrappers = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".wrapper.cpp")]
    (calls,) = (torch_internals.package_calls(wrapper) for wrapper in wrappers)
    assert any("mm" in name or "linear" in name for name in calls[0])
    assert any("sin" in name for name in calls[1])


def test_a_package_is_loaded_single_threaded_as_torch_itself_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own function says by its name which of the loader's arguments that is."""
    path = tmp_path / "package.pt2"
    torch_internals.compile_package(torch.export.export(Net(), (X,), strict=False), path, {})
    given: list[tuple[object, ...]] = []

    class Noting(torch._C._aoti.AOTIModelPackageLoader):  # type: ignore[misc, name-defined]
        def __init__(self, *arguments: object) -> None:
            given.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", Noting)
    torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
    torch_internals.load_package(path)
    one, other = given
    assert one == other


def test_trials_of_the_host_are_left_out_within_the_context_alone(tmp_path: Path) -> None:
    from torch._inductor import codecache, cpu_vec_isa

    usual = codecache._precompile_header, cpu_vec_isa.VecISA._probe_load
    with torch_internals.without_trials():
        assert codecache._precompile_header("any.h", "") == ""
        assert not cpu_vec_isa.invalid_vec_isa._probe_load(str(tmp_path / "none.so"))
        assert cpu_vec_isa.invalid_vec_isa._probe_load(str(tmp_path))
    assert (codecache._precompile_header, cpu_vec_isa.VecISA._probe_load) == usual


def test_no_other_file_imports_what_torch_keeps_private() -> None:
    private = re.compile(
        r"\bfrom torch\.(?:\w+\.)*_\w+|\bimport torch\.(?:\w+\.)*_\w+|^[^#\n]*\btorch\._\w+\.\w+\(", re.M
    )
    files = [file for folder in ("backends", "bakeoff/worker", "export") for file in (ROOT / folder).rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if private.search(file.read_text(encoding="utf-8"))}
    assert found == {"backends/torch_internals.py"}


def test_reading_counters_imports_nothing() -> None:
    code = (
        "import sys; from bakeoff.backends.torch_internals import snapshot, read_counters, CompileActivity\n"
        "assert snapshot() == CompileActivity() and read_counters('stats') == {}\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_products_of_integers_are_exact() -> None:
    left, right = (torch.randint(-127, 128, (32, 32), dtype=torch.int8) for _ in range(2))
    assert torch.equal(torch_internals.int8_product(left, right.t()), left.int() @ right.t().int())


class TestCopies:
    VALUES: ClassVar = {
        "wide": torch.randn(3, 4).bfloat16(),
        "one": torch.randn(1),
        "ids": torch.arange(5),
        "mask": torch.tensor([True, False]),
        "none": torch.randn(0, 3),
        "turned": torch.randn(4, 3).t(),
    }

    def copied(self, device: str) -> dict[str, Tensor]:
        """What buffers hold after a copy; the last has other strides than its value."""
        values = {name: value.to(device) for name, value in self.VALUES.items()}
        buffers = {
            name: torch.zeros(value.shape, dtype=value.dtype, device=device) for name, value in values.items()
        } | {"kept": torch.full((2,), 7.0, device=device)}
        before = {name: buffer._version for name, buffer in buffers.items()}
        assert torch_internals.copier(buffers, values)() == ()
        assert all(buffers[name]._version > before[name] for name in values), "as copy_, which checks rely on"
        assert torch_internals.copier(buffers, {})() == ()
        return buffers

    def test_every_value_reaches_the_buffer_of_its_name(self) -> None:
        found = self.copied("cpu")
        assert found.pop("kept").tolist() == [7, 7]
        assert all(torch.equal(found.pop(name), value) for name, value in self.VALUES.items())
        assert not found

    def test_on_a_gpu_a_list_has_one_dtype_and_equal_strides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As foreach_tensor_copy_list_kernel_cuda_ asks of a list that one kernel copies (2.13)."""
        lists: list[tuple[list[Any], list[Any]]] = []
        monkeypatch.setattr(torch, "_foreach_copy_", lambda *both: lists.append(both))

        def on_gpu(dtype: torch.dtype, *strides: int) -> Any:
            return SimpleNamespace(is_cuda=True, device="cuda:0", dtype=dtype, stride=lambda: strides)

        half, full = torch.bfloat16, torch.float32
        buffers = {"a": on_gpu(half, 4, 1), "b": on_gpu(full, 1), "c": on_gpu(half, 1), "d": on_gpu(half, 4, 1)}
        values = {"a": on_gpu(half, 4, 1), "b": on_gpu(full, 1), "c": on_gpu(half, 1), "d": on_gpu(half, 1, 3)}
        torch_internals.copier(buffers, values)()
        wanted = (["a", "c"], ["b"], ["d"])
        assert lists == [([buffers[name] for name in one], [values[name] for name in one]) for one in wanted]

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
    def test_a_gpu_copies_all_of_a_dtype_by_one_kernel(self) -> None:
        assert all(torch.equal(self.copied("cuda")[name].cpu(), value) for name, value in self.VALUES.items())
        tensors = {f"{index}": torch.ones(64, device="cuda", dtype=torch.bfloat16) for index in range(40)}
        tensors["sigma"] = torch.ones(1, device="cuda")
        buffers = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        copy = torch_internals.copier(buffers, tensors)
        copy()
        with torch.profiler.profile() as recorded:
            copy()
            torch.cuda.synchronize()
        ran = [event for event in recorded.events() if event.device_type == torch.profiler.DeviceType.CUDA]
        assert len(ran) == 2
        assert all(torch.equal(buffers[name], tensor) for name, tensor in tensors.items())
