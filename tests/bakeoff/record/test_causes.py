"""Why two records differ: pairs whose cause is known name it first."""

from dataclasses import replace
from typing import Any

import pytest
from records import clock, measurement, record

from bakeoff.record.causes import Explanation, explain
from bakeoff.record.finding import Finding
from bakeoff.record.objective import Objective
from bakeoff.record.policy import Policy
from bakeoff.record.schema import BackendSource, InputCopy, KernelTime, ProofRecord, Record, Samples, TraceRecord


def known(a: Record, b: Record) -> Explanation:
    found = explain(a, b)
    assert found is not None
    return found


def first(a: Record, b: Record) -> str:
    return known(a, b).causes[0].what


def slower(**changes: Any) -> Record:
    return replace(record("eager", [4.0] * 20), **changes)


FAST = record("eager", [3.0] * 20)


class TestSixPairs:
    def test_threads(self) -> None:
        """With the variables and settings that follow from them."""
        one = measurement([4.0] * 20, settings={"threads": 1, "interop_threads": 1})
        found = known(FAST, slower(threads=1, environment={"OMP_NUM_THREADS": "1"}, measurement=one))
        assert [(cause.what, cause.a, cause.b) for cause in found.causes] == [("threads", "4", "1")]
        assert found.difference_ms == pytest.approx(1.0)

    def test_an_allocators_variable(self) -> None:
        changed = {"OMP_NUM_THREADS": "4", "MALLOC_ARENA_MAX": "1"}
        assert first(FAST, slower(environment=changed)) == "environment MALLOC_ARENA_MAX"

    def test_a_flag_of_torch(self) -> None:
        a, b = (
            replace(FAST, measurement=measurement([ms] * 20, settings={"float32_matmul_precision": how}))
            for ms, how in ((3.0, "high"), (4.0, "highest"))
        )
        assert first(a, b) == "setting float32_matmul_precision"

    def test_another_graph(self) -> None:
        """The component's source may have changed with it: the graph is nearer to the time."""
        proofs = (ProofRecord(graph_hash=str(n), operators_inside={"linear": n}) for n in (12, 14))
        a, b = (
            replace(
                FAST, measurement=measurement([ms] * 20, proof=proof), source=replace(FAST.source, component=str(ms))
            )
            for ms, proof in zip((3.0, 4.0), proofs, strict=True)
        )
        cause, source = known(a, b).causes
        assert (cause.what, cause.a, cause.b) == ("graph hash", "12", "14")
        assert cause.brought == ("operator inside linear 12 to 14",)
        assert source.what == "source of component"

    def test_latency_against_throughput(self) -> None:
        """B's other clock tells how much of the difference is the clock's."""
        made = replace(measurement([3.2] * 20), throughput=clock([2.0] * 20))
        found = known(FAST, slower(measurement=made, objective=Objective("throughput")))
        assert (found.causes[0].what, found.a_ms, found.b_ms) == ("objective", 3.0, 2.0)
        assert found.causes[0].ms == pytest.approx(-1.2)

    def test_a_copy_of_the_inputs(self) -> None:
        """What one side copies in its calls, the other was timed to copy before them."""
        before = InputCopy(False, 1 << 20, Samples([800_000] * 5))
        a = replace(FAST, measurement=measurement([3.0] * 20, input_copy=before))
        b = slower(measurement=measurement([4.0] * 20, input_copy=InputCopy(True, 1 << 20)), versions={"torch": "2.12"})
        found = known(a, b)
        assert (found.causes[0].what, found.causes[0].ms) == ("input copies", 0.8)
        back = known(b, a)
        assert (back.causes[0].what, back.causes[0].ms) == ("input copies", -0.8)


def test_a_clock_that_fell_explains_as_much_as_time_follows_it() -> None:
    a, b = (
        replace(FAST, measurement=measurement([ms] * 20, device_state={"sm_mhz": mhz}))
        for ms, mhz in ((3.0, 1980), (4.0, 1485))
    )
    assert known(a, b).causes[0].what == "clock of the GPU"
    assert known(a, b).causes[0].ms == pytest.approx(1.0)


def disturbed(ms: float, code: str, **state: Any) -> Record:
    found = (Finding(code, "told"),) if code else ()
    return replace(FAST, measurement=replace(measurement([ms] * 20, device_state=state), findings=found))


@pytest.mark.parametrize("code", ["contention", "gpu-shared", "throttled", "power-cap", "drift", "bimodal"])
def test_a_disturbance_of_the_faster_side_is_no_cause_unless_it_may_work_either_way(code: str) -> None:
    either = {"drift", "bimodal"}
    for a, b in ((disturbed(3.0, code), disturbed(4.0, "")), (disturbed(4.0, ""), disturbed(3.0, code))):
        assert [cause.what for cause in known(a, b).causes] == ([code] if code in either else [])
    for a, b in ((disturbed(4.0, code), disturbed(3.0, "")), (disturbed(3.0, ""), disturbed(4.0, code))):
        assert [cause.what for cause in known(a, b).causes] == [code]


def test_other_times_of_sampling_are_a_cause_and_other_limits_of_findings_none() -> None:
    one, other = (replace(FAST, policy=Policy(min_s=min_s)) for min_s in (1.5, 5.0))
    (cause,) = known(one, replace(other, measurement=measurement([4.0] * 20))).causes
    assert (cause.what, cause.a, cause.b) == ("policy min", "1.5 s", "5 s")
    assert known(FAST, slower(policy=Policy(contention=5.0, trace=False))).causes == ()


def test_another_network_is_named_by_its_work() -> None:
    """A third more arithmetic in a third more time, of a model whose source and weights are others, too."""
    larger = replace(record(samples_ms=[13.3] * 12), flops=8_000_000_000, checkpoint="others, sha256 2")
    causes = known(replace(record(samples_ms=[10.0] * 12), flops=6_000_000_000), larger).causes
    assert [cause.what for cause in causes] == ["work of a call", "checkpoint"]
    assert (causes[0].a, causes[0].b) == ("6 GFLOP", "8 GFLOP")
    assert causes[0].ms == pytest.approx(10 / 3)


def test_another_backend_comes_before_its_versions_graph_and_sources() -> None:
    def of(backend: str, ms: float, component: str) -> Record:
        proof = ProofRecord(graph_hash=backend)
        made = record(backend, made=measurement([ms] * 20, proof=proof, settings={"freezing": backend}))
        source = replace(made.source, component=component, backends=(BackendSource(backend, backend, "", "1"),))
        return replace(made, source=source, versions={"torch": "2.12", backend: "1.0"})

    causes = known(of("aoti", 3.0, "one"), of("openvino", 4.0, "other")).causes
    assert [(cause.what, cause.a, cause.b, cause.brought) for cause in causes] == [
        ("backend", "aoti", "openvino", ()),
        ("setting freezing", "aoti", "openvino", ()),
        ("version of aoti", "1.0", "", ("version of openvino none to 1.0",)),
        ("graph hash", "aoti", "openvino", ()),
        (
            "source of component",
            "one",
            "other",
            ("source of backend aoti 1 to none", "source of backend openvino none to 1"),
        ),
    ]


def test_another_installation_is_one_cause_that_is_named_after_torch() -> None:
    (cause,) = known(
        replace(FAST, versions={"numpy": "1", "torch": "2.12"}), slower(versions={"numpy": "2", "torch": "2.13"})
    ).causes
    assert (cause.what, cause.a, cause.b, cause.brought) == (
        "version of torch",
        "2.12",
        "2.13",
        ("version of numpy 1 to 2",),
    )


def test_no_cause_has_a_size_where_both_records_were_disturbed() -> None:
    a, b = (disturbed(ms, code, sm_mhz=mhz) for ms, code, mhz in ((3.0, "drift", 1980), (4.0, "contention", 1485)))
    clock_of = known(a, b).causes[0]
    assert (clock_of.what, clock_of.ms) == ("clock of the GPU", None)
    assert known(a, b).both_disturbed
    alone = known(disturbed(3.0, "", sm_mhz=1980), b)
    assert alone.causes[0].ms == pytest.approx(1.0)
    assert not alone.both_disturbed
    unstable = [replace(one, measurement=replace(one.measurement, findings=(), status="unstable")) for one in (a, b)]
    assert known(*unstable).both_disturbed


def test_kernels_that_grew_come_first_and_what_only_one_side_states_is_no_change() -> None:
    def traced(ms: float, count: int, **kernels: int) -> Record:
        stated = tuple(KernelTime(name, 1, ns, own=False) for name, ns in kernels.items())
        trace = TraceRecord(stated, count, 4_000_000, 4_000_000, 0, span_ns=5_000_000, busy_ns=4_000_000)
        return replace(FAST, measurement=measurement([ms] * 20, proof=ProofRecord(trace=trace)))

    def told(a: Record, b: Record) -> list[tuple[str, float | None, float | None]]:
        return [(place.name, place.a_ms, place.b_ms) for place in known(a, b).places]

    a, b = traced(3, 9, int_mm=900_000, add=50_000), traced(4, 9, linear=800_000, cat=90_000)
    assert told(a, b) == [("int_mm", 0.9, None), ("linear", None, 0.8), ("cat", None, 0.09)], "add may be in B as well"
    assert known(a, b).places[0].grew_ms == -0.9
    places = known(traced(3, 2, mm=2_000_000, add=50_000), traced(4, 3, mm=2_900_000, cat=90_000)).places
    assert [(place.name, round(place.grew_ms, 3)) for place in places] == [("mm", 0.9), ("cat", 0.09)]
