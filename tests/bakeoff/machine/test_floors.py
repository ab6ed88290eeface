"""Peak rates from ceilings and from datasheets."""

from dataclasses import replace

import pytest
from ceilings import CEILINGS, MIB
from records import GPU_HOST

from bakeoff.machine.floors import find_datasheet, peak_bandwidth, peak_flops
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
        ("NVIDIA GeForce RTX 5080 Laptop GPU", None),
        ("NVIDIA GB200", None),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None),
        ("NVIDIA H20", None),
        ("NVIDIA L40", None),
        ("Tesla T4", None),
    ],
)
def test_a_gpu_is_known_by_its_name(name: str, sheet: str | None) -> None:
    found = find_datasheet(gpu(name), "cuda")
    assert (found.name if found else None) == sheet
    assert find_datasheet(gpu(name), "cpu") is None


@pytest.mark.parametrize(
    ("name", "gigabytes", "teraflops"),
    [
        ("NVIDIA B200", 8000, (75, 1125, 2250, 2250)),
        ("NVIDIA H100 NVL", 3938, (60, 417.5, 835.5, 835.5)),
        ("NVIDIA H100 PCIe", 2039, (51.2, 378, 756, 756)),
        ("NVIDIA GH200 480GB", 4000, (67, 494.7, 989.5, 989.5)),
        ("NVIDIA GH200 144G HBM3e", 4900, (67, 494.7, 989.5, 989.5)),
        ("NVIDIA GeForce RTX 4080", 716.8, (48.7, 48.7, 97.5, 194.9)),
        ("NVIDIA GeForce RTX 5080", 960, (56.3, 56.3, 112.6, 225.1)),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1792, (126, 251.9, 503.8, 503.8)),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 1792, (109.7, 219.5, 438.9, 438.9)),
    ],
)
def test_rates_are_dense(name: str, gigabytes: float, teraflops: tuple[float, ...]) -> None:
    found = find_datasheet(gpu(name), "cuda")
    assert found is not None
    assert found.bytes_per_s == pytest.approx(gigabytes * 1e9)
    wanted = dict(zip(("fp32", "tf32", "bf16", "fp16"), (rate * 1e12 for rate in teraflops), strict=True))
    assert found.flops == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("name", "cores", "megahertz"),
    [("4080", 9728, 2505), ("4090", 16384, 2520), ("5080", 10752, 2617), ("5090", 21760, 2407)],
)
def test_rates_of_geforce_cards_follow_from_cores_and_boost_clock(name: str, cores: int, megahertz: int) -> None:
    """The whitepapers state both: two operations for each core and cycle in fp32, twice and four times that in bf16 and
    fp16 tensor cores."""
    found = find_datasheet(gpu(f"NVIDIA GeForce RTX {name}"), "cuda")
    assert found is not None
    rates = [found.flops[dtype] for dtype in ("fp32", "tf32", "bf16", "fp16")]
    assert rates == pytest.approx([factor * 2 * cores * megahertz * 1e6 for factor in (1, 1, 2, 4)], rel=2e-3)
