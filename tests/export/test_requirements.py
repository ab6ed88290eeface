"""Host requirements: versions, flags and GPUs are compared, and an unmet one is named with both values."""

import pytest

from bakeoff.backends.format import HostRequirement
from bakeoff.export.requirements import facts, unmet, with_host_values

HERE = {"torch": "2.13.0", "cpu flags": "avx2 avx512f", "gpu": "NVIDIA H200", "driver": "570.86"}


@pytest.mark.parametrize(
    ("need", "met"),
    [
        (HostRequirement("torch", "is", "2.13.0"), True),
        (HostRequirement("torch", "is", "2.13.1"), False),
        (HostRequirement("torch", "at least", "2.9.1"), True),
        (HostRequirement("torch", "at least", "2.13"), True),
        (HostRequirement("torch", "at least", "2.13.0a0"), True),
        (HostRequirement("torch", "at least", "2.14"), False),
        (HostRequirement("torch", "at least", "newest"), False),
        (HostRequirement("cpu flags", "has", "avx2"), True),
        (HostRequirement("cpu flags", "has", ""), True),
        (HostRequirement("cpu flags", "has", "avx2 amx_bf16"), False),
        (HostRequirement("gpu", "is", "NVIDIA H200"), True),
        (HostRequirement("gpu", "is", "NVIDIA H100"), False),
        (HostRequirement("driver", "at least", "535.104.5"), True),
        (HostRequirement("driver", "at least", "580"), False),
        (HostRequirement("openvino", "at least", "2026.4"), False),
    ],
)
def test_a_requirement_is_met_or_not(need: HostRequirement, met: bool) -> None:
    assert (unmet([need], HERE) == ()) is met


def test_an_empty_value_is_what_the_writing_host_has() -> None:
    found = with_host_values(
        [HostRequirement("torch", "is"), HostRequirement("torch", "is"), HostRequirement("machine", "is", "x86_64")],
        HERE,
    )
    assert found == (HostRequirement("torch", "is", "2.13.0"), HostRequirement("machine", "is", "x86_64"))


def test_a_value_that_the_writing_host_does_not_know_is_no_requirement() -> None:
    wanted = [HostRequirement("cuda", "at least"), HostRequirement("driver", "at least")]
    assert with_host_values(wanted, HERE) == (HostRequirement("driver", "at least", "570.86"),)


def test_this_host_meets_its_own_requirements() -> None:
    here = facts()
    rules = {name: "has" if name == "cpu flags" else "is" for name in here}
    assert unmet(with_host_values([HostRequirement(name, rule) for name, rule in rules.items()], here), here) == ()  # type: ignore[arg-type]
