"""Whether regimes and probes leave honest rows in peace: small models in fp32, bf16 and two kinds of int8.

    nice -n 15 python tests/trials/honest_regimes.py tests/trials/honest_regimes.jsonl [--rows 300]

Each row is built and measured as by a worker, with the shortest clocks, in a fork of this process, and judged against
references of its own model, weights and inputs. FILE gets a line of JSON for each, so that the same command goes on
where it stopped. Times do not matter: other processes may run. Exits 1 if a row that is right on the given inputs was
accused by a regime or a probe. Printed too: rows with the finding `narrow`, and rows that are wrong on the given inputs
or crash, which is the compiler's, not the regimes'. Rows that a compiler or a quantiser refuses are no rows.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from describing import described, source_of
from honest_models import MODELS as FILE
from honest_models import NAMES
from lab import FAST

from bakeoff.process.jobs import BackendStep, MeasureJob, ReferenceJob, Subject
from bakeoff.worker.measure import measure
from bakeoff.worker.reference.make import make_reference

_TOYS = [("toy", "tiny", name, batch) for name in ("world", "picture", "sound", "stream") for batch in (1, 3)]
_PARTS = [("ranged:SPEC", "tiny", name, batch) for name in ("attend", "norm", "gate", "linear") for batch in (1, 3)]
MODELS = [
    *_TOYS,
    *_PARTS,
    ("normed:SPEC", "plain", "classify", 2),
    ("wm", "tiny", "step", 1),
    ("image", "tiny", "decode", 1),
    ("audio", "tiny", "decode", 1),
    *((f"{FILE}:{name}", "mine", "", 1) for name in NAMES),
]
_DYNAMIC, _WEIGHTS = ("int8", {"least": 0}), ("int8", {"least": 0, "kind": "weight-only"})
_QUANTISED = (("fp32", "eager"), ("fp32", "inductor"), ("bf16", "inductor"))
KINDS: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [
    *(("fp32", "", [(name, {})]) for name in ("inductor", "torch.export", "onnxruntime", "openvino")),
    *(("bf16", "", [(name, {})]) for name in ("eager", "inductor", "openvino")),
    *((dtype, "dynamic", [_DYNAMIC, (name, {})]) for dtype, name in _QUANTISED),
    *((dtype, "weight-only", [_WEIGHTS, (name, {})]) for dtype, name in _QUANTISED),
]
SEEDS = range(4)
_LONGEST_S = 600.0
REFUSED = ("unavailable", "unsupported", "build_failed", "fell_back")
"""What a compiler or quantiser says of itself; `fell_back` also where it left all work to PyTorch."""


def silent(_phase: str, _detail: str = "", /) -> None:
    pass


def subject_of(model: tuple[str, str, str, int], seed: int, folder: Path) -> Subject:
    component, preset, workload, batch = model
    if not workload:
        name = component.rpartition(":")[2]
        to = folder / "described" / name
        if not to.exists():
            described(source_of(FILE, name), to)
        component, workload = str(to), "call"
    return Subject(component, preset, workload, batch, seed, seed, "", "cpu", 1)


def row(model: tuple[str, str, str, int], seed: int, kind: Any, folder: Path) -> dict[str, Any]:
    dtype, quantisation, steps = kind
    of = subject_of(model, seed, folder)
    references = folder / f"{Path(of.component).name}.{of.workload}.{of.batch}.{seed}".replace(":", ".")
    make_reference(ReferenceJob(of, (dtype,), str(references)), silent)
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in references.iterdir()}
    named = tuple(BackendStep(name, options) for name, options in steps)
    with tempfile.TemporaryDirectory(dir=folder) as work, contextlib.chdir(work):
        made = measure(
            MeasureJob(of, "mine", named, dtype, FAST, str(references), work, quantisation, hashes), silent
        ).measurement
    regimes = made.parity.regimes if made.parity is not None else ()
    return {
        "status": made.status,
        "reason": made.reason,
        "judged": [one.name for one in regimes if one.limit is not None],
        "narrow": {one.name: [one.rel_l2, one.eager, one.limit] for one in regimes if one.narrow},
        "repeats": made.parity.repeats if made.parity is not None else None,
    }


def in_fork(*asked: Any) -> dict[str, Any]:
    """The row, or how its process ended without one."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    def work(to: Connection) -> None:
        try:
            to.send(row(*asked))
        except Exception as error:  # noqa: BLE001
            to.send({"status": "crashed", "reason": f"{type(error).__name__}: {error}"})

    process = multiprocessing.get_context("fork").Process(target=work, args=(sending,))
    process.start()
    sending.close()
    try:
        found: dict[str, Any] = (
            receiving.recv() if receiving.poll(_LONGEST_S) else {"status": "crashed", "reason": "late"}
        )
    except EOFError:
        found = {"status": "crashed", "reason": "its process died"}
    process.kill()
    process.join()
    return found


def wanted() -> Iterator[tuple[str, tuple[Any, ...]]]:
    every = [(model, seed, kind) for model in MODELS for seed in SEEDS for kind in KINDS]
    random.Random(0).shuffle(every)
    for model, seed, kind in every:
        dtype, quantisation, steps = kind
        name = f"{Path(model[0]).name}{'.' if model[2] else ''}{model[2]}x{model[3]}"
        yield f"{name} {seed} {quantisation or 'plain'}/{steps[-1][0]}/{dtype}", (model, seed, kind)


def group(one: Mapping[str, Any]) -> str:
    given = "(inputs " in one["reason"] or "(changed inputs " in one["reason"]
    if one["status"] in ("crashed", "call_failed") or (given and "freed memory" not in one["reason"]):
        return "not right on the given inputs"
    return "accused" if one["status"] == "parity_failed" else "narrow" if one["narrow"] else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=300)
    asked = parser.parse_args()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of processes, which outlives a fork
    importlib.import_module("torch._inductor.compile_fx")  # once, for all forks
    done = [json.loads(line) for line in asked.file.read_text().splitlines()] if asked.file.exists() else []
    known = {one["row"] for one in done}
    with tempfile.TemporaryDirectory(prefix="honest-regimes-") as folder:
        for name, what in wanted():
            if sum(one["status"] not in REFUSED for one in done) >= asked.rows:
                break
            if name in known:
                continue
            started = time.monotonic()
            done.append({"row": name, **in_fork(*what, Path(folder)), "s": round(time.monotonic() - started, 1)})
            with asked.file.open("a") as file:
                file.write(f"{json.dumps(done[-1])}\n")
            print(done[-1], flush=True)
    rows = [one for one in done if one["status"] not in REFUSED]
    groups: dict[str, list[dict[str, Any]]] = {"": [], "accused": [], "narrow": [], "not right on the given inputs": []}
    for one in rows:
        groups[group(one)].append(one)
    for name, those in groups.items():
        for one in those if name else ():
            print(f"{name}: {one}")
    judged = sum(len(one["judged"]) for one in (*groups[""], *groups["accused"], *groups["narrow"]))
    counts = ", ".join(f"{len(those)} {name or 'right'}" for name, those in groups.items())
    print(f"{len(rows)} rows, {judged} regimes judged; {counts}; beside them {len(done) - len(rows)} refused")
    return int(bool(groups["accused"]))


if __name__ == "__main__":
    sys.exit(main())
