"""Sweeps on GPUs of this host: orders are dealt to them, one at a time to each, with its share of the CPUs."""

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
from lab import FAST, MARKER, Recorder, processes_with, wait_until

from bakeoff.cluster.devices import Device, carry_out
from bakeoff.cluster.order import Order, own_code
from bakeoff.cluster.reports import Assignment
from bakeoff.machine import gpus, host
from bakeoff.plan.request import Request
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all

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


def test_a_host_without_gpus_says_so() -> None:
    code, _, err = run("toy", "--device", "cuda:1", **{fake_gpus.COUNT: "0"})
    assert (code, "NVML finds no NVIDIA GPU" in err) == (2, True), err


def test_the_lab_s_own_sweeps_run_beside_each_other_on_cpus_of_their_own(tmp_path: Path) -> None:
    """With the CPU in place of two GPUs: what they share, their processes and their records are the real ones."""
    devices = [Device(f"cuda:{number}", f"GPU-{number}", f"{number}/2") for number in range(2)]
    asked = Request("", workloads=("world",), backends=("eager",), dtypes=("fp32",), device="cpu", policy=FAST)
    orders = [
        Assignment(Order(replace(asked, component="toy", presets=(preset,), ceilings=False), preset, 0, own_code()))
        for preset in ("tiny", "small")
    ]
    progress = Recorder()
    carry_out(devices, orders, tmp_path, progress)
    assert [(order.problem, order.rows, order.done is not None) for order in orders] == [("", 1, True)] * 2
    one, other = (entry.record for entry in load_all(tmp_path).current)
    for record in (one, other):
        assert record.environment[gpus.VISIBLE] == record.node.replace("cuda:", "GPU-")
        assert record.threads == max(1, host.usable_cores() // 2)
    assert one.node != other.node
    waited = [text for kind, text in progress.told if kind == "say" and "waiting for" in text]
    assert host.usable_cores() < 2 or not waited


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
