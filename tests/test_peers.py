"""The page that compares with AITune is what its record gives, and the lies that are told are lies."""

import copy
import json
from typing import Any

import pytest
from lies import DISABLED, DISABLED_IN_PARTS
from peers_page import PAGE, RECORD, TITLES, aitune_cell, lab_cell, page, table

from bakeoff.backends.backend import by_options

FINAL = {"word": "faster", "ratio": 1.254, "low": 1.2, "high": 1.31}
RUN = {
    "success": True,
    "speedup": 63.7512,
    "faster": True,
    "selected": "Candidate(zeros)",
    "batch": 1,
    "exception": None,
    "error": 1.0,
}


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_bytes())
    return found


def test_the_page_is_what_the_record_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(record())


def test_the_record_has_every_lie_and_says_how_loaded_the_machine_was() -> None:
    found = record()
    assert set(found["rows"]) == set(TITLES) or not found["finished"]
    assert set(found["load"]) == {"start", "end"}
    assert found["aitune"]["stubbed"] == ["tensorrt", "modelopt"]
    assert set(found["same"]) == {"lab", "aitune"} or not found["finished"]
    assert "stubbed" in page(found)
    assert "All ran on a CPU" in page(found)
    assert "/tmp/" not in RECORD.read_text(encoding="utf-8")


@pytest.mark.parametrize(("start", "said"), [(0.9, False), (3.0, True)])
def test_a_loaded_machine_takes_the_meaning_from_its_speeds(start: float, said: bool) -> None:
    changed = record()
    changed["load"]["start"], changed["host"]["cores"] = start, 2
    assert ("speeds and seconds on this page mean nothing" in page(changed)) == said


def test_without_aitune_each_of_its_cells_says_so_and_the_lab_keeps_its_own() -> None:
    changed = copy.deepcopy(record())
    missing = {"missing": "AITune cannot be imported here: ModuleNotFoundError: No module named 'aitune'"}
    changed["aitune"] = missing
    changed["same"] = {"aitune": missing, "lab": {"finals": [FINAL], "seconds": 9.0}}
    for said in changed["rows"].values():
        said["aitune"] = [missing]
    lines = table(changed).splitlines()[2:]
    assert len(lines) == len(changed["rows"]) + bool(changed["same"])
    assert all("AITune cannot be imported here" in line for line in lines)
    assert "parity_failed" in lines[0]
    assert missing["missing"] in page(changed)
    assert "sooner" not in page(changed)


def test_what_aitune_said_of_one_candidate() -> None:
    assert aitune_cell([{"runs": [RUN], "seconds": 6.4}]) == (
        "**success**, speed-up 63.75x; selected `Candidate(zeros)`, whose output is off by 100.0%; 6 s"
    )
    failed = RUN | {"success": False, "speedup": None, "exception": "no\nkernel", "selected": "Eager()", "error": 0.0}
    assert aitune_cell([{"runs": [failed], "seconds": 6.4}]) == "**failed**: no; selected `Eager()`; 6 s"
    assert aitune_cell([{"died": "SIGABRT", "seconds": 6.4}]).startswith("the process ended by **SIGABRT**, without")
    assert aitune_cell([{"needs": "a GPU"}]) == "not run: needs a GPU"
    assert aitune_cell([]).startswith("not run: ")


def test_what_the_lab_said_of_one_candidate() -> None:
    rows = [
        {"batch": 1, "status": "ok", "reason": "", "findings": ["memoised"], "final": FINAL},
        {"batch": 8, "status": "crashed", "reason": f"SIGABRT in /a/b/c.py {'x ' * 99}", "findings": [], "final": None},
    ]
    said = lab_cell({"rows": rows, "seconds": 20.0})
    assert said.startswith(
        "batch 1: **ok**, in the final faster, 1.25x [1.20, 1.31]; batch 8: **crashed**: SIGABRT in c.py"
    )
    assert said.endswith(" ...; 20 s")


class TestLies:
    """Each function of tests/support/lies.py on a small module."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch", reason="lies are told of torch's modules")

    def module(self) -> Any:
        import torch
        from torch import nn

        class Small(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(16, 16)

            def forward(self, x: Any) -> tuple[Any]:
                return (self.layer(x),)

        torch.manual_seed(0)
        return Small().eval().requires_grad_(False)

    def test_those_of_inductor_can_be_planned(self) -> None:
        """A backend that names its options, and no default sets of them, is swept with its own options."""
        for lie in (DISABLED, DISABLED_IN_PARTS):
            (default,) = lie.defaults
            assert type(default.options) is lie.options
            assert not by_options(lie.searches, default.options)

    @pytest.mark.parametrize(
        ("name", "least", "most"), [("zeros", 1, 1), ("bf16", 1e-4, 1e-2), ("tf32", 0, 0), ("plain", 0, 0)]
    )
    def test_it_is_off_by_so_much(self, name: str, least: float, most: float) -> None:
        import lies
        import torch

        module, x = self.module(), torch.randn(3, 16)
        (expected,) = module(x)
        before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
        (found,) = getattr(lies, name)(module)(x)
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert least <= float((found - expected).norm() / expected.norm()) <= most
        assert torch.equal(module(x)[0], expected), "the module itself is as it was"

    def test_the_first_call_at_a_batch_sleeps_and_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import lies
        import torch

        slept: list[float] = []
        monkeypatch.setattr(lies.time, "sleep", slept.append)
        call = lies.slow_first(self.module())
        for batch in (1, 1, 2, 1, 2):
            call(torch.zeros(batch, 16))
        assert slept == [lies.FIRST_CALL_S] * 2

    def test_dynamo_does_not_enter_a_disabled_module(self) -> None:
        import lies
        import torch

        from bakeoff.backends.torch_internals import snapshot

        module = self.module()
        lies.disable(module)
        before = snapshot()
        torch.compile(module, backend="eager")(torch.zeros(1, 16))
        assert (snapshot() - before).captured == 0


def test_aitune_is_stubbed_only_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import aitune_stubs

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(aitune_stubs, "STUBBED", ("json", "never_installed_by_anyone"))
    assert aitune_stubs.stub_missing() == ("never_installed_by_anyone",)
    import never_installed_by_anyone.part as made  # type: ignore[import-not-found]

    assert isinstance(made.Anything.INFO, type)
    assert made.Anything(1, two=2)
    for name in ("never_installed_by_anyone", "never_installed_by_anyone.part"):
        monkeypatch.delitem(sys.modules, name)
