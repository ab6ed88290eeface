"""Sweeps on GPUs of this host: orders are dealt to them, one at a time to each, with its share of the CPUs."""

import io
import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import fake_gpus
import pytest
from lab import FAST, MARKER, TORCHLESS, Recorder, marked_folder, processes_with, wait_until

from bakeoff.cluster import node, order
from bakeoff.cluster.devices import Device, carry_out
from bakeoff.cluster.order import Order, own_code
from bakeoff.cluster.reports import Assignment
from bakeoff.cluster.spread import carry_out_spread
from bakeoff.machine import gpus, host
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.record.comparable import subject_key
from bakeoff.record.schema import Calibration, Record
from bakeoff.record.store import load_all
from bakeoff.report.groups import newest, shown_faster, tables

SUPPORT = Path(__file__).parents[2] / "support"
TWO = {"BAKEOFF_TEST_NODE": str(SUPPORT / "null_node.py"), fake_gpus.COUNT: "2"}


def start(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "ray_bakeoff.py"), "sweep", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **TWO, **environment},
    )


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    process = start(*arguments, **environment)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def records() -> list[Record]:
    return [entry.record for entry in load_all(Path(os.environ["BAKEOFF_RUNS"])).current]


def test_each_gpu_is_given_one_order_after_the_other() -> None:
    components = ("toy:tiny", "toy:small", "toy:medium")
    code, out, err = run(*components, "--device", "cuda:1,cuda:0", "--note", "rows 2", "--json")
    assert code == 0, err
    assert {name: len(told["records"]) for name, told in json.loads(out).items()} == dict.fromkeys(components, 2)
    uuids = {"cuda:0": f"GPU-{fake_gpus.uuid(0)}", "cuda:1": f"GPU-{fake_gpus.uuid(1)}"}
    for record in records():
        assert [facts["uuid"] for facts in record.host.gpus] == [uuids[record.node]]
        assert record.threads == max(1, host.usable_cores() // 2)
    of_subject = {record.variant.preset: set[str]() for record in records()}
    for record in records():
        of_subject[record.variant.preset].add(record.node)
    assert all(len(places) == 1 for places in of_subject.values()), "rows of a subject share their GPU"
    assert set.union(*of_subject.values()) == set(uuids)
    assert len({record.machine.id for record in records()}) == 2
    assert len({record.machine.machine_class for record in records()}) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_sweep_that_is_stopped_leaves_nobody_and_is_resumed_where_it_was(number: signal.Signals) -> None:
    asked = ("toy:tiny", "toy:small", "--device", "cuda:0,cuda:1", "--note", "hang")
    marker = uuid.uuid4().hex
    process = start(*asked, **{MARKER: marker})
    wait_until(lambda: len(records()) == 2, "the first row of both GPUs")
    process.send_signal(number)
    process.communicate(timeout=100)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    wait_until(lambda: not processes_with(marker), "the end of what the processes started")
    if number == signal.SIGKILL:
        return
    before = {(record.variant.preset, record.node) for record in records()}
    code, _, err = run(*asked, "--resume")
    assert code == 0, err
    assert {(record.variant.preset, record.node) for record in records()} == before
    assert sorted(record.position for record in records()) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("cuda:0,cuda:2", "there is no cuda:2; CUDA sees 2 here, cuda:0 to cuda:1 [missing-device]"),
        ("cuda:0,cuda:0", "give each GPU once, as in cuda:0,cuda:1 [bad-option]"),
        ("cpu,cuda:0", "give each GPU once, as in cuda:0,cuda:1 [bad-option]"),
    ],
)
def test_a_wrong_list_is_refused(asked: str, said: str) -> None:
    code, _, err = run("toy", "--device", asked)
    assert (code, f"--device {asked}: {said}" in err) == (2, True), err


def test_rows_of_one_subject_are_spread_and_compared_on_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab's own sweeps, with halves of the CPUs in place of two GPUs: both measure eager at first, then one of them
    the other row, then one of them the final."""
    monkeypatch.setattr(order, "NODE", (str(SUPPORT / "apart_node.py"),))
    halves = [Device(f"cuda:{number}", f"GPU-{number}", f"{number}/2") for number in range(2)]
    backends = ("eager", "inductor[]")
    asked = Request("toy", ("tiny",), ("world",), backends, ("fp32",), "cpu", policy=FAST, ceilings=False)
    whole = Assignment(Order(replace(asked, final_s=0.2), "spread", 0, own_code()))
    names = [half.name for half in halves]
    carry_out_spread([whole], names, tmp_path, lambda some: carry_out(halves, some, tmp_path, Recorder()))
    assert (whole.problem, whole.rows, whole.done is not None) == ("", 2, True)
    held = load_all(tmp_path)
    one, other, spread = (entry.record for entry in held.current)
    assert {(record.variant.backend, record.node) for record in (one, other)} == {("eager", name) for name in names}
    assert spread.variant.backend == "inductor"
    for record in (one, other, spread):
        assert record.environment[gpus.VISIBLE] == record.node.replace("cuda:", "GPU-")
        assert record.threads == max(1, host.usable_cores() // 2)
    medians_ns = {record.machine.id: round(record.latency.median_ms * 1e6) for record in (one, other) if record.latency}
    assert len(medians_ns) == 2
    assert one.calibration == other.calibration == Calibration("spread")
    assert spread.calibration == Calibration("spread", medians_ns)
    (table,) = tables(newest(held.current))
    assert table.title.startswith("toy:tiny.world (toy), batch 1, 2 x ")
    assert sorted(entry.record.variant.backend for entry in table.rows) == ["eager", "inductor"]
    (final,) = held.comparisons
    assert len({side.machine.id for side in final.record.sides}) == 1
    assert subject_key(final.record.a) == subject_key(spread)


TWO_ROWS = ("toy:tiny", "--device", "cuda:0,cuda:1", "--note", "rows 5", "--spread")


def test_a_ratio_within_what_the_machines_differ_by_shows_nothing() -> None:
    code, out, err = run(*TWO_ROWS, COLUMNS="200")
    assert code == 0, err
    assert "2 x NVIDIA H100" in out
    spread = "eager fp32 in 2 processes on the machines of this table: medians 18.09 to 19.09 ms, 5.4% apart"
    assert spread in " ".join(out.split())
    of = {(record.variant.backend, record.node): record for record in records()}
    assert len(of) == len(records()) == 6
    base = of["eager", "cuda:0"]
    for record in (record for (backend, _), record in of.items() if backend != "eager"):
        assert shown_faster(record, base) is None, "of two machines, it is as far apart as these"
        alone = [replace(each, calibration=None) for each in (record, base)]
        assert shown_faster(*alone) is None, "of two hosts of no common sweep, nothing is divided"


def test_shares_of_the_cpus_are_whole_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for cpu in range(8):  # as Linux numbers four cores of two CPUs each
        (tmp_path / str(cpu)).write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    monkeypatch.setattr(host, "_SIBLINGS", f"{tmp_path}/{{}}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(host, "usable_cores", lambda: 4)
    assert [host.share_of_cpus(place, 2) for place in range(2)] == [{0, 4, 1, 5}, {2, 6, 3, 7}]
    assert [host.share_of_cpus(place, 3) for place in range(3)] == [{0, 4}, {1, 5}, {2, 6, 3, 7}]
    assert {place: host.share_of_cpus(place, 8) for place in (0, 1, 7)} == {0: {0, 4}, 1: {0, 4}, 7: {3, 7}}
    monkeypatch.setattr(host, "usable_cores", lambda: 2)  # by a quota
    assert [host.share_of_cpus(place, 2) for place in range(2)] == [{0, 4}, {1, 5}]


def test_what_a_node_stored_and_no_driver_got_is_told_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver was killed, its disk was full, or the connection broke."""
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")
    request = Request("toy", presets=("tiny",), backends=("eager",), dtypes=("fp32",), device="cpu", final_s=0)
    asked = Order(replace(request, ceilings=False), "20990101T000000-abcdef", 1, own_code())

    def told(known: tuple[bytes, ...] = ()) -> list[bytes]:
        lines = io.BytesIO()
        node.run_order(replace(asked, known=known), node.Lines(lines))
        found = [json.loads(line) for line in lines.getvalue().splitlines()]
        assert found[-1][0] == "done"
        return [json.dumps(values[0]).encode() for kind, *values in found if kind == "stored"]

    with marked_folder(tmp_path):
        first = told()
        assert len(first) == 1
        assert told() == first, "the row is not timed again"
        assert told(tuple(first)) == [], "the driver has it"
