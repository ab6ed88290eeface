"""What a real torch tells: units in which it compiled, and ranges in its own profiler."""

from pathlib import Path
from typing import Any

import pytest
from recording import make_profiler, opened, range_at, record_of

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("fullgraph", [False, True])
def test_units_in_which_torch_compiles_are_apart(fullgraph: bool, tmp_path: Path) -> None:
    torch._dynamo.reset()

    def double(value: Any) -> Any:
        return value * 2

    compiled = torch.compile(double, backend="eager", fullgraph=fullgraph, dynamic=False)
    with opened(make_profiler(tmp_path)) as session:
        for size in (3, 3, 3, 4, 4, 3):
            with session.unit(frames=1):
                compiled(torch.ones(size))
    kinds = [unit.kind for unit in record_of(session).spans]
    assert kinds == ["compiling", "steady", "steady", "compiling", "steady", "steady"]


def test_ranges_are_in_torchs_profiler_while_it_records(tmp_path: Path) -> None:
    with opened(make_profiler(tmp_path)) as session:
        with session.phase("before"):
            torch.ones(3)
        with torch.profiler.profile() as traced:
            for _ in range(2):
                with session.unit(), session.phase("denoise"):
                    torch.ones(3)
        with session.phase("after"):
            torch.ones(3)
    seen = {entry.key: entry.count for entry in traced.key_averages()}
    assert (seen["unit"], seen["denoise"]) == (2, 2)
    assert not {"before", "after"} & set(seen)


def test_a_profiler_of_torch_that_fails_does_not_end_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(f"no {name}")

    with torch.profiler.profile():
        monkeypatch.setattr(torch.autograd.profiler, "record_function", fail)
        with opened(make_profiler(tmp_path)) as session, session.phase("a"):
            pass
    record = record_of(session)
    assert range_at(record, "a").calls == 1
    assert [finding.text for finding in record.findings] == ["torch could not open a range: RuntimeError: no a"]
