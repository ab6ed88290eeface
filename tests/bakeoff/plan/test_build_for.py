"""What `--build-for` plans: rows that are built for GPUs that are not here."""

from collections.abc import Sequence
from typing import Any

import pytest
from records import HOST
from targets import REFERENCE

from bakeoff import backends
from bakeoff.backends.backend import Backend
from bakeoff.backends.tensorrt_rtx.options import TARGETS
from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "unavailable", lambda *_asked: None)
    monkeypatch.setattr(host, "read_host", lambda: HOST)
    monkeypatch.setattr(host, "available_bytes", lambda _device: 64 << 30)


@pytest.fixture
def two_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._TABLE, REFERENCE, REFERENCE)


def plan_of(build_for: Sequence[str] = ("sm89",), **asked: Any) -> Plan:
    return make_plan(
        Request("toy", **{"presets": ("tiny",), "workloads": ("world",), **asked}, build_for=tuple(build_for))
    )


def planned(build_for: Sequence[str] = ("sm89",), **asked: Any) -> list[str]:
    return [str(row.variant).partition("/")[2] for row in plan_of(build_for, **asked).rows]


class TestRows:
    def test_each_target_is_a_row_in_fp16_on_this_machine(self) -> None:
        assert planned(TARGETS) == [f"tensorrt-rtx[target={target}]/fp16@cpu" for target in TARGETS]
        assert [row.target for row in plan_of(TARGETS).rows] == list(TARGETS)

    @pytest.mark.usefixtures("two_can")
    def test_without_names_it_is_every_backend_that_can(self) -> None:
        assert planned(["sm89", "sm120"]) == [
            f"{name}[target={target}]/fp16@cpu"
            for name in ("tensorrt-rtx", "elsewhere")
            for target in ("sm89", "sm120")
        ]

    @pytest.mark.usefixtures("two_can")
    def test_named_ones_keep_their_options(self) -> None:
        found = planned(["sm120"], backends=(f"{REFERENCE}[level=2]", "tensorrt-rtx"))
        assert found == ["elsewhere[target=sm120,level=2]/fp16@cpu", "tensorrt-rtx[target=sm120]/fp16@cpu"]

    def test_nothing_is_timed_afterwards(self) -> None:
        request = plan_of().request
        assert (request.device, request.ceilings, request.final_s) == ("cpu", False, 0.0)
        assert plan_of(device="cpu").request == request


class TestRefused:
    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"build_for": ("sm90",)}, ("sm90", *TARGETS)),
            ({"build_for": ("sm89", "RTX 4090")}, ("RTX 4090", *TARGETS)),
            ({"backends": ("eager",)}, ("eager", "tensorrt-rtx")),
            ({"backends": ("tensorrt-rtx", "aoti[freezing]")}, ("aoti", "tensorrt-rtx")),
            ({"backends": ("tensorrt-rtx+aoti",)}, ("aoti", "tensorrt-rtx")),
            ({"device": "cuda"}, ("--device cuda", "--build-for")),
            ({"backends": ("tensorrt-rtx[target=sm12]",)}, ("sm12", *TARGETS)),
        ],
        ids=["target", "a card's name", "backend", "one of two", "last of two", "device", "option"],
    )
    def test_in_one_sentence_with_what_is_known(self, asked: dict[str, Any], says: Sequence[str]) -> None:
        with pytest.raises(BakeoffError) as refused:
            plan_of(**asked)
        text = str(refused.value)
        assert refused.value.code == "bad-option"
        assert [part for part in says if part not in text] == [], text
        assert "\n" not in text
        assert "of ," not in text, "the empty target means this GPU, and is no name"

    def test_without_a_target_a_cpu_runs_no_engine(self) -> None:
        (row,) = make_plan(Request("toy", ("tiny",), ("world",), ("tensorrt-rtx[]",), ("fp16",), "cpu")).rows
        obstacle = row.obstacle()
        assert obstacle is not None
        assert "--build-for sm89" in obstacle.reason
        assert row.target == ""
