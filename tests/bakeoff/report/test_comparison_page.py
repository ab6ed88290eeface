"""Two records side by side, and a comparison in full."""

import re
from dataclasses import replace

from comparisons import final
from few_records import PAGES, TEN, at, ms
from records import GPU_HOST

from bakeoff.record.causes import explain
from bakeoff.record.diff import differences
from bakeoff.record.schema import KernelTime, ProofRecord, Record, TraceRecord
from bakeoff.record.store import StoredComparison
from bakeoff.report.document import Document
from bakeoff.report.pages import explain as page_of_two
from bakeoff.report.pages.comparison import document
from bakeoff.report.render import terminal

CONVOLUTION = KernelTime("aten::mkldnn_convolution", 14, 1_823_371, False)


def traced(*kernels: KernelTime, count: int = 0, **facts: object) -> ProofRecord:
    ns = sum(kernel.ns for kernel in kernels)
    return ProofRecord(trace=TraceRecord(kernels, count or len(kernels), ns, ns, 0), facts=facts)


def of(record: Record, proof: ProofRecord, **changes: object) -> Record:
    return replace(record, measurement=replace(record.measurement, proof=proof, **changes))


def apart(a: Record, b: Record) -> Document:
    found = explain(a, b)
    assert found is not None
    return page_of_two.document(found)


def test_the_page_of_unlike_records_fits_a_terminal() -> None:
    operators = {f"aten.operator_{index}": index for index in range(12)}
    a = of(
        at(1, "eager", ms(10.0), config={"width": 32, "stages": [{"name": "down", "blocks": 3}, {"name": "up"}]}),
        replace(
            traced(CONVOLUTION, KernelTime("aten::add", 12, 400_000, False), export_from_cache=False),
            operators_outside=operators,
        ),
        device_state={"core_distance_ns": 142.4, "core_distance_low_ns": 140.0, "other_cpu_share": 0.01},
        weights="e3c96158b0e75eedf1d7aef3302ffa347baa0c11e4870c83c5654fdcdd619301",
    )
    b = of(
        at(
            2, "inductor", ms(5.0),
            config={"width": 64, "stages": [{"name": "down", "blocks": 4}, {"name": "up"}]},
            host=replace(GPU_HOST, memory_bytes=16 << 30, cpu_flags=("avx2", "avx512f", "avx512_vnni", "amx_int8")),
            commit="fedcba9876543210fedcba9876543210fedcba98",
            versions={"bakeoff": "0.1.0", "torch": "2.13.0", "triton": "3.5.0"},
        ),
        replace(
            traced(
                replace(CONVOLUTION, calls=12, ns=1_500_000),
                KernelTime("cpp_fused__native_batch_norm_legit_no_training_add_hardtanh_mul_relu_3", 1, 90_000, True),
                count=31,
                weights_outside_package_bytes=2_187_910_048,
            ),
            quantised={f"blocks.{index}.linear": "int8 dynamic" for index in range(121)},
        ),
        device_state={"core_distance_ns": 129.2, "core_distance_low_ns": 120.0, "other_cpu_share": 0.09},
        weights="262bbd7ef7bdaccfa8599e3780be419d7a06b1a4166784ce897a93cd19f40ddd",
    )  # fmt: skip
    page = terminal.render(apart(a, b), 80) + "\n"
    assert page == (PAGES / "compare.txt").read_text(encoding="utf-8")
    assert max(len(line) for line in page.splitlines() if not line.startswith("bakeoff ")) <= 80
    assert not {"{", "}"} & {*page}


def test_kernels_of_two_runs_differ_by_calls_and_not_by_times() -> None:
    record = at(1, "eager", TEN)
    short, shorter = (KernelTime(name, 1, 5_000, False) for name in ("aten::mul", "aten::silu"))
    a = of(record, traced(CONVOLUTION, short, count=9))
    b = of(record, traced(replace(CONVOLUTION, ns=2_000_000), shorter, count=9))
    assert differences(a, b) == ()
    assert "Nothing that is recorded differs but what was measured" in terminal.render(apart(a, b))
    fewer = of(record, traced(replace(CONVOLUTION, calls=1), short, count=9))
    assert [(found.what, found.a, found.b) for found in differences(a, fewer)] == [
        ("kernel aten::mkldnn_convolution", "14 calls, 1.823 ms", "1 call, 1.823 ms")
    ]
    untraced = of(record, ProofRecord())
    assert [(found.what, found.a, found.b) for found in differences(a, untraced)] == [("traced call", "9 kernels", "")]


def test_a_comparison_says_first_which_is_faster_and_lists_it_first() -> None:
    fast, slow = at(1, "inductor", [5.0] * 20), at(2, "eager", [10.0] * 20)
    for sides in ((fast, slow), (slow, fast)):
        lines = terminal.render(document(StoredComparison("the-id", final(*sides)))).splitlines()
        assert lines[0].startswith("inductor fp32 is faster than eager fp32: 2.000x [2.000, 2.000], 84 interleaved")
        assert lines[2] == "toy:tiny.world on cpu"
        assert [line.split()[:3] for line in lines[5:7]] == [["inductor", "fp32", "5.000"], ["eager", "fp32", "10.00"]]
        assert lines[-1].endswith("stored as the-id")


def test_a_baseline_is_a_third_row_and_a_side_that_failed_has_its_reason() -> None:
    fast, slow = at(1, "inductor", [5.0] * 20), at(2, "aoti", [10.0] * 20)
    text = terminal.render(document(StoredComparison("id", final(fast, slow, at(3, "eager", [20.0] * 20)))))
    assert re.search(r"^eager fp32 +20\.00  ok$", text, re.MULTILINE)
    failed = at(2, "aoti", [10.0] * 20, "crashed", "exit code 1")
    text = terminal.render(document(StoredComparison("id", replace(final(fast, failed), rounds=()))))
    assert text.startswith("inductor fp32 against aoti fp32: no verdict, aoti fp32 was crashed: exit code 1\n")
    assert "crashed  exit code 1" in text
