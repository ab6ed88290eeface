"""Peak rates from ceilings and from datasheets."""

from dataclasses import replace
from typing import Any

import pytest
from ceilings import CEILINGS, MIB
from records import GPU_HOST, HOST

from bakeoff.machine.floors import _SHEETS, find_datasheet, peak_bandwidth, peak_flops
from bakeoff.machine.host import Host


def test_bandwidth_is_that_of_the_largest_working_set_that_is_not_larger() -> None:
    assert peak_bandwidth(CEILINGS, 511 * MIB) == 90e9
    assert peak_bandwidth(CEILINGS, 512 * MIB) == 15e9
    assert peak_bandwidth(CEILINGS, 10) == 90e9
    assert peak_bandwidth((), 10) == 0.0


def test_the_best_of_products_and_convolutions_counts() -> None:
    assert peak_flops(CEILINGS, "fp32") == 150e9
    assert peak_flops(CEILINGS, "bf16") == 300e9
    assert peak_flops(CEILINGS, "fp16") == 0.0


def gpu(name: str) -> Host:
    return replace(GPU_HOST, gpus=({"name": name},))


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA H20", None),
        ("NVIDIA L40", None),
        ("Tesla T4", None),
    ],
)
def test_a_gpu_is_known_by_its_name(name: str, sheet: str | None) -> None:
    found = find_datasheet(gpu(name), "cuda")
    assert (found.name if found else None) == sheet
    assert find_datasheet(gpu(name), "cpu") is None


def test_no_gpu_has_no_datasheet() -> None:
    assert find_datasheet(HOST, "cuda") is None


@pytest.mark.parametrize("sheet", _SHEETS, ids=lambda sheet: sheet.name)
def test_rates_are_in_order_and_sourced(sheet: Any) -> None:
    rates = sheet.flops
    assert rates["fp32"] <= rates["tf32"] <= rates["bf16"] <= rates["fp16"]
    assert 1e11 < sheet.bytes_per_s < 1e13
    assert sheet.source
