"""Attention's kernel as a choice on a CPU: both kinds with and without a compiler, and other kernels are found."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="attention is torch's")

import torch
from lab import FAST, sweep
from other_kernel import FIXED
from torch import Tensor, nn
from torch.nn import functional
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, Toy, build_toy

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.attention import BACKEND, Kind, Options, _ran_instead
from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.models import resolve_component
from bakeoff.plan.request import Request
from bakeoff.plan.suites import compositions
from bakeoff.record.schema import Record
from bakeoff.worker.checked_variant import ran_instead
from bakeoff.worker.checks.dispatch import dispatched
from bakeoff.worker.torch_flags import apply_flags, flags, read_flags, settings

KERNELS = {
    "flash": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>",
    "efficient": "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
    "cudnn": "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
}
"""Names of CUDA kernels of torch's attention, as its profiler shows them on an H100."""
PRODUCTS = ["sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "softmax_warp_forward"]


@pytest.fixture(autouse=True)
def _restore_settings() -> Iterator[None]:
    kernels = torch.backends.cuda
    before = [read() for read in (kernels.flash_sdp_enabled, kernels.mem_efficient_sdp_enabled)]
    before += [read() for read in (kernels.cudnn_sdp_enabled, kernels.math_sdp_enabled)]
    yield
    kernels.enable_flash_sdp(before[0])
    kernels.enable_mem_efficient_sdp(before[1])
    kernels.enable_cudnn_sdp(before[2])
    kernels.enable_math_sdp(before[3])


class Attention(nn.Module):
    def forward(self, query: Tensor, value: Tensor) -> tuple[Tensor]:
        return (functional.scaled_dot_product_attention(query, query, value),)


def context(tmp_path: Path) -> BuildContext:
    return BuildContext("attention", "cpu", "fp32", 1, tmp_path, tmp_path, lambda _seed: {})


def inputs(value_width: int = 16) -> Mapping[str, Tensor]:
    return {"query": torch.randn(1, 2, 8, 16), "value": torch.randn(1, 2, 8, value_width)}


def instead(toy: Toy) -> str:
    """What the toy's prepared module says of the operators that a call dispatches."""
    with flags(toy.dtype, 1):
        toy.built.calls[0]()
        ran = dispatched(toy.built.calls[0])
    return ran_instead(toy.built.prepared, ran.operators, complete=True)


@LIBRARY_WARNINGS
@pytest.mark.parametrize("builder", ["eager", pytest.param("inductor", marks=NEEDS_COMPILER)])
@pytest.mark.parametrize("kind", ["flash", "math"])
def test_the_chosen_kernel_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, builder: str) -> None:
    """With a cache of its own: inductor's cache does not know which kernel was chosen."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    made = build_toy(f"world/attention[kind={kind}]+{builder}/fp32", tmp_path)
    assert instead(made) == ""
    assert made.built.prepared.facts == {"attention": kind, "attention_calls": 1}
    assert made.error() < 1e-5
    with flags("fp32", 1):
        ran = dispatched(made.built.calls[0]).operators
    assert ("_scaled_dot_product_flash_attention_for_cpu" in ran) == (kind == "flash")


@pytest.mark.parametrize(
    ("kind", "fused", "said"),
    [
        ("math", True, "flash attention: _scaled_dot_product_flash_attention_for_cpu ran"),
        ("flash", False, "no kernel of flash attention ran"),
        ("flash", True, ""),
        ("math", False, ""),
    ],
)
@LIBRARY_WARNINGS
def test_another_kernel_than_the_chosen_one_is_named(tmp_path: Path, kind: Kind, fused: bool, said: str) -> None:
    tensors = inputs()
    made = BACKEND.prepare(Attention(), tensors, Options(kind), context(tmp_path))
    engine = FIXED.build(made.module, tensors, FIXED.options(fused), context(tmp_path))
    ran = dispatched(engine.bind(tensors)).operators
    found = ran_instead(made, ran, complete=True)
    assert said in found
    assert bool(found) == bool(said)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """One row that runs the kernel, one that does not, and two that cannot."""
    backends = ("attention+eager", "attention[kind=math]+other_kernel:FIXED", "attention+openvino")
    request = Request(
        "toy",
        workloads=("world",),
        backends=(*backends, "attention[kind=efficient]+eager"),
        dtypes=("fp32",),
        device="cpu",
        policy=FAST,
    )
    swept = sweep(request, tmp_path_factory.mktemp("attention"))
    return {stored.record.variant.backend: stored.record for stored in swept.done.stored}


def test_the_choice_is_in_the_record_and_another_kernel_is_a_fallback(records: dict[str, Record]) -> None:
    chosen, other = records["attention+eager"], records["attention[kind=math]+fixed-kernel"]
    assert chosen.status in ("ok", "unstable"), chosen.measurement.reason  # other tests run beside this one
    assert not [finding for finding in chosen.measurement.findings if finding.code == "settings"]
    kernels = ("flash_sdp", "math_sdp", "cudnn_sdp", "memory_efficient_sdp")
    assert [chosen.measurement.settings[name] for name in kernels] == [True, False, False, False]
    assert other.status == "fell_back"
    assert "_scaled_dot_product_flash_attention_for_cpu" in other.measurement.reason


def test_what_a_cpu_or_a_builder_has_not_is_refused_in_a_sentence(records: dict[str, Record]) -> None:
    refused, own = records["attention[kind=efficient]+eager"], records["attention+openvino"]
    assert (refused.status, "on a CPU" in refused.measurement.reason) == ("unsupported", True)
    if own.status != "unavailable":
        assert (own.status, "kernels of its own" in own.measurement.reason) == ("unsupported", True)


def test_every_other_builder_takes_the_choice() -> None:
    builders = [resolve_backend(name) for name in backend_names()]
    taken = {backend.name for backend in builders if backend.build and not backend.own_attention}
    assert taken == {"eager", "cudagraph", "inductor", "aoti", "torch.export"}


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn", "math"])
def test_kernels_of_a_trace_tell_the_kinds_apart(tmp_path: Path, kind: Kind) -> None:
    if kind in ("flash", "math"):
        (check,) = BACKEND.prepare(Attention(), inputs(), Options(kind), context(tmp_path)).ran_instead
    else:
        check = partial(_ran_instead, kind)
    own = [KERNELS[kind]] if kind in KERNELS else []
    assert check(frozenset([*PRODUCTS, *own]), True) == ""
    for other in KERNELS.keys() - {kind}:
        said = check(frozenset([*PRODUCTS, *own, KERNELS[other]]), False)
        assert said.startswith(f"{other} attention")
        assert KERNELS[other] in said
    nothing = check(frozenset(PRODUCTS), True)
    assert bool(nothing) == (kind != "math")
    assert check(frozenset(), False) == "", "a captured graph dispatches nothing: its trace decides"


@pytest.mark.parametrize("kind", ["fa3", "fa4"])
def test_another_flash_attention_is_activated_for_build_and_calls_and_left_after_them(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By stand-ins for the packages, registered as torch documents it for those who provide one."""
    active: list[str] = []

    class Handle:
        def remove(self) -> None:
            active.clear()

    def register() -> Handle:
        active.append(kind.upper())
        return Handle()

    monkeypatch.setattr("torch.nn.attention._registry._FLASH_ATTENTION_IMPLS", {kind.upper(): register})
    before = read_flags()
    made = BACKEND.prepare(Attention(), inputs(), Options(kind), context(tmp_path))
    assert (active, made.settings["flash_attention"]) == ([kind.upper()], kind.upper())
    with_it = read_flags()
    assert settings() == {**settings(), **made.settings}
    apply_flags(before)  # as a mix does before a call of another engine
    assert (active, "flash_attention" in settings()) == ([], False)
    apply_flags(with_it)
    assert active == [kind.upper()]
    (check,) = made.ran_instead
    own = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    assert check(frozenset([*PRODUCTS, own, "_scaled_dot_product_flash_attention"]), True) == ""
    assert KERNELS["flash"] in check(frozenset([*PRODUCTS, own, KERNELS["flash"]]), False)
    assert check(frozenset([KERNELS["cudnn"]]), False).startswith("cudnn attention")
    apply_flags(before)


@pytest.mark.parametrize(("kind", "package"), [("fa3", "flash_attn_interface"), ("fa4", "flash_attn")])
def test_a_package_that_lacks_or_is_another_is_named(kind: Kind, package: str, tmp_path: Path) -> None:
    assert package in (BACKEND.unavailable(Options(kind), "cuda") or "")
    assert BACKEND.unavailable(Options("flash"), "cpu") is None
    before = settings()
    with pytest.raises(Unsupported, match=f"torch cannot activate {kind.upper()}: No module named '{package}"):
        BACKEND.prepare(Attention(), inputs(), Options(kind), context(tmp_path))
    assert settings() == before


def test_what_no_kernel_of_the_kind_computes_is_refused_with_torchs_reason(tmp_path: Path) -> None:
    before = settings()
    with pytest.raises(Unsupported, match=r"no flash attention .*same last dimension"):
        BACKEND.prepare(Attention(), inputs(24), Options("flash"), context(tmp_path))
    assert settings() == before


@pytest.mark.parametrize(
    ("component", "device", "expected"),
    [("wm", "cpu", 2), ("wm", "cuda", 6), ("matrix-vae", "cuda", 6), ("image", "cuda", 0)],
)
def test_the_full_suite_has_a_row_for_each_kind_where_there_is_attention(
    component: str, device: str, expected: int
) -> None:
    taken = compositions(Request(component, suite="full"), resolve_component(component), device)
    assert len([one for one in taken if one.steps[0].backend is BACKEND]) == expected
