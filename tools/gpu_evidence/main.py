"""Runs what needs a GPU, step by step in the order of what it is worth: first the fast sequence, rows of all five
components from a GPU that is rented for minutes; then a smoke test of every backend, sweeps of the published presets,
tests marked gpu, the selftest, exports. Nothing is committed.

A step that fails does not stop the next. A call goes on where the last one stopped: a cut sweep with the rows that are
left, and failed steps only with --retry. What was done with other code, other libraries or another kind of GPU is done
anew. One archive is written after each row and step. Exit codes: 0 all steps passed, 1 one failed, 2 nothing can run
here, 75 time was up before all were tried (call again), 130 interrupted.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gpu_evidence.archive import record_names, write_archive
from gpu_evidence.interpreter import environment, find_python
from gpu_evidence.processes import GRACE_S, Ended, end_with_reader, interrupt_on_signals, run
from gpu_evidence.state import Outcome, State, hash_files, key_of, load
from gpu_evidence.steps import FAST, SUBJECTS, Step, steps

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(__file__).resolve().parents[1]
LEAST_S = 45.0
"""No step begins with less time left: a row that is cut is measured anew."""
_TIME_IS_UP, _INTERRUPTED, _TOO_LONG = 75, 130, 124
FAST_S, FAST_LEAST_S, _FAST_GRACE_S = 540.0, 10.0, 8.0
"""The fast sequence by itself: its default budget, the least time in which it begins, and from its end to the budget's.
"""
EXAMPLE_CARD = "NVIDIA H100 80GB HBM3, 81559 MiB, 9.0"
_NOTHING_TO_RESUME = 2
_RESUMED = ("sweep", "pipeline")
"""Kinds of steps whose command goes on where it was cut."""
_TABLE_S = 60.0
_TABLE_LINES = 40
_ROW = re.compile(r"\[\d+/\d+\] (?=\S.*?  \S)")
"""How a sweep's log begins the line of a finished row."""


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked on the command line, and what was found."""

    device: str
    note: str
    subjects: tuple[str, ...]
    folder: Path
    archive: Path
    python: str
    environment: dict[str, str]
    facts: dict[str, Any]
    ends: float | None
    """When the time is up, by time.monotonic."""

    @property
    def runs(self) -> Path:
        return Path(self.facts["runs"])

    @property
    def cache(self) -> Path:
        return Path(self.facts["cache"])

    def left_s(self, grace_s: float) -> float | None:
        """Seconds that a step may take."""
        return None if self.ends is None else max(1.0, self.ends - time.monotonic() - grace_s)

    def pack(self, state: State) -> int:
        """Write the archive anew; returns its bytes."""
        return write_archive(state, self.runs, self.cache, self.archive)

    def bakeoff(self, *words: str) -> list[str]:
        return [self.python, "-P", "-m", "bakeoff", *words]


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    end_with_reader(asked.dry_run or asked.list)
    subjects = tuple(filter(None, asked.subjects.split(",")))
    patterns = [part.strip() for part in asked.only.split(",")]
    patterns = [FAST] if asked.fast else patterns
    chosen = [step for step in steps(subjects) if any(fnmatch(step.name, pattern) for pattern in patterns)]
    if not chosen:
        print(f"no step fits --only '{asked.only}'; --list names them", file=sys.stderr)
        return 2
    if asked.list:
        for step in chosen:
            print(f"{step.name:33}{step.subject} {','.join(step.backends)} {' '.join(step.tests)}".rstrip())
        return 0
    interrupt_on_signals()
    try:
        return _run(asked, chosen)
    except KeyboardInterrupt:
        print("interrupted; the same call goes on from here", file=sys.stderr)
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    parser.add_argument(
        "--dry-run", action="store_true", default=bool(os.environ.get("DRY")), help="make all plans, without a GPU"
    )
    parser.add_argument("--fast", action="store_true", help=f"the fast sequence alone, by default {FAST_S:.0f} s of it")
    parser.add_argument("--card", metavar="LINE", help=f"with --dry-run: as nvidia-smi states one, '{EXAMPLE_CARD}'")
    parser.add_argument("--only", default="*", metavar="NAMES", help="steps by name, as in 'smoke-*,torch-wm-*'")
    parser.add_argument(
        "--subjects", default="", help="COMPONENT:PRESET.WORKLOAD,... in place of the published presets"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu tries this tool itself")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="end in time, cutting the step that runs then")
    parser.add_argument("--retry", action="store_true", help="repeat steps that failed")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs/evidence", help="for state, logs and tables")
    parser.add_argument("--to", type=Path, help="folder of the archive, evidence.tar.gz (default: that of --folder)")
    parser.add_argument("--note", default="gpu evidence", help="goes into the records")
    return parser


def _run(asked: argparse.Namespace, chosen: Sequence[Step]) -> int:
    budget_s = FAST_S if asked.fast and asked.budget is None else asked.budget
    ends = None if budget_s is None else time.monotonic() + budget_s
    folder = asked.folder.absolute()
    for name in ("logs", "tables", "manifests"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    python = find_python(ROOT)
    found = environment(python, ROOT, folder)
    helpers = {**found, "PYTHONPATH": os.pathsep.join(filter(None, [str(TOOLS), found.get("PYTHONPATH")]))}
    facts = _facts(python, [asked.device, *(["fast"] if asked.fast else [])], helpers)
    missing = facts["missing"]
    for name, why in missing.items():
        print(f"DOES NOT IMPORT: {name}: {why}", flush=True)
    print(f"libraries: {'only what needs these lacks' if missing else 'all import'}", flush=True)
    if "bakeoff" in missing:
        print(f"bakeoff cannot run with {python}; its dependencies must lie on PYTHONPATH", file=sys.stderr)
        return 2
    if facts["dirty"]:
        print("this tree has changes, as each record will say; to commit them: git commit -am 'Measure'", flush=True)
    archive = (asked.to or folder).absolute() / "evidence.tar.gz"
    subjects = tuple(filter(None, asked.subjects.split(",")))
    call = Call(asked.device, asked.note, subjects, folder, archive, python, helpers, facts, ends)
    if asked.dry_run:
        return _dry_run(chosen, call, asked.card or (EXAMPLE_CARD if asked.device == "cuda" else ""))
    if asked.device == "cuda" and not facts["gpus"]:
        print("no NVIDIA GPU answers here; --dry-run makes the plans", file=sys.stderr)
        return 2
    print(f"{', '.join(facts['gpus']) or 'CPU'}, driver {facts['driver'] or 'none'}, code {facts['code']}", flush=True)
    lacks = "pytest" in missing and [step.name for step in chosen if step.kind == "tests"]
    if lacks:
        print(f"left out without pytest: {' '.join(lacks)}", flush=True)
        chosen = [step for step in chosen if step.kind != "tests"]
    return _run_steps(call, chosen, asked.retry)


def _facts(python: str, words: list[str], found: dict[str, str]) -> dict[str, Any]:
    command = [python, "-P", "-m", "gpu_evidence.facts", *words]
    done = subprocess.run(command, env=found, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def _dry_run(chosen: Sequence[Step], call: Call, card: str) -> int:
    """Make the plans of all steps that have one, and collect the tests of the others; 1 where one cannot be made."""
    planned, python, found = [asdict(step) for step in chosen if step.subject], call.python, call.environment
    command, failed = [python, "-P", "-m", "gpu_evidence.plans", call.device], 0
    if planned:
        done = subprocess.run(command, input=json.dumps(planned), env=found, cwd=ROOT, text=True, check=False)
        failed = done.returncode
    for step in chosen:
        if step.kind == "fast":
            print(f"{step.name:33}of a pretended {card or call.device}", flush=True)
            command = [python, "-P", "-m", "gpu_evidence.fast", _fast_json(call, dry_run=True, card=card)]
            failed = failed or subprocess.run(command, env=found, cwd=ROOT, check=False).returncode
        if step.kind == "tests":
            command = [python, "-P", "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *step.tests]
            done = subprocess.run(command, env=found, cwd=ROOT, capture_output=True, text=True, check=False)
            collected = [line for line in done.stdout.splitlines() if "::" in line]
            word = "ok" if done.returncode == 0 and collected else "WRONG"
            print(f"{step.name:33}{word:6}{len(collected)} tests", flush=True)
            if word != "ok":
                print(done.stdout + done.stderr)
                failed = 1
    return int(failed != 0)


def _run_steps(call: Call, chosen: Sequence[Step], retry: bool) -> int:
    state = load(call.folder, record_names(call.runs))
    tests = hash_files(ROOT / "tests")
    keys = {step.name: key_of(step, call.facts, tests, call.device) for step in chosen}
    ran: list[Step] = []
    try:
        for step in chosen:
            before = state.outcome(step, keys[step.name])
            if before is not None and not before.cut and (before.code == 0 or not retry):
                print(f"{step.name:33}{_word(before)} before", flush=True)
                continue
            least_s = FAST_LEAST_S + _FAST_GRACE_S if step.kind == "fast" else LEAST_S + GRACE_S
            if call.ends is not None and call.ends - time.monotonic() < least_s:
                break
            state.outcomes[step.name] = Outcome(keys[step.name], _INTERRUPTED, 0.0, "interrupted", cut=True)
            state.save()
            records = len(record_names(call.runs))
            outcome = _run_step(call, step, keys[step.name], state, resume=before is not None and before.cut)
            if step.kind != "fast" and outcome.cut and not ran and len(record_names(call.runs)) == records:
                said = f"did not end within a whole call; raise --budget: {outcome.said}"
                outcome = replace(outcome, code=_TOO_LONG, cut=False, said=said)
            state.outcomes[step.name] = outcome
            ran.append(step)
            print(f"{step.name:33}{_word(outcome):12}{outcome.seconds:5.0f} s  {outcome.said[:120]}", flush=True)
            if step.kind == "sweep":
                _write_table(call, step.component)
            state.save()
            call.pack(state)
    finally:
        state.save()
        size = call.pack(state)
        for component in dict.fromkeys(step.component for step in ran if step.kind == "sweep"):
            table = (call.folder / "tables" / f"{component}.txt").read_text(encoding="utf-8")
            print("\n".join(["", *table.splitlines()[:_TABLE_LINES]]))
        print(f"archive: {call.archive} ({size / 2**20:.1f} MiB)", flush=True)
    return _sum_up([(step.name, state.outcome(step, keys[step.name])) for step in chosen])


def _sum_up(found: Sequence[tuple[str, Outcome | None]]) -> int:
    """Print how many steps passed, failed and are left; returns the exit code."""
    left = [name for name, outcome in found if outcome is None or outcome.cut]
    failed = [name for name, outcome in found if outcome is not None and outcome.code and not outcome.cut]
    print(f"{len(found) - len(left) - len(failed)} passed, {len(failed)} failed, {len(left)} left")
    if failed:
        print(f"failed: {' '.join(failed)}")
    if left:
        print(f"left: {' '.join(left)}; the same call goes on from here")
        return _TIME_IS_UP
    return int(bool(failed))


def _word(outcome: Outcome) -> str:
    if outcome.cut:
        return "cut"
    return "ok" if outcome.code == 0 else f"exit {outcome.code}"


def _run_step(call: Call, step: Step, key: str, state: State, resume: bool) -> Outcome:
    """Run a step's commands until one fails; its artifact, if it makes one, is deleted but for its manifest."""
    log, started = call.folder / "logs" / f"{step.name}.log", time.monotonic()

    def show(line: str) -> None:
        row = step.kind in _RESUMED and _ROW.match(line)
        if row:
            call.pack(state)
        if row or step.kind in ("smoke", "fast"):
            print(f"  {_ROW.sub('', line)[:160]}", flush=True)

    if not resume:
        log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-evidence-") as made:
        artifact = Path(made) / "artifact"
        ended = Ended(0)
        limit_s = call.left_s(_FAST_GRACE_S if step.kind == "fast" else GRACE_S)
        place = ROOT / "tests" / "support" if step.kind == "selftest" else ROOT
        for command in _commands(call, step, artifact):
            resumed = [*command, "--resume"] if resume and step.kind in _RESUMED else command
            ended = run(resumed, call.environment, place, log, limit_s, show)
            if resumed != command and ended.code == _NOTHING_TO_RESUME:  # as on another machine of the kind
                ended = run(command, call.environment, place, log, limit_s, show)
            if ended.code:
                break
        if (artifact / "manifest.json").is_file():
            shutil.copyfile(artifact / "manifest.json", call.folder / "manifests" / f"{step.name}.json")
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip() if lines else ""
    cut = (ended.late and ended.code != 0) or (step.kind == "fast" and ended.code in (_TIME_IS_UP, _INTERRUPTED))
    return Outcome(key, ended.code, time.monotonic() - started, last, cut)


def _fast_json(call: Call, dry_run: bool = False, card: str = "") -> str:
    """What `gpu_evidence.fast` takes: one subject of each component, until the end of this call's time."""
    subjects = {one.partition(":")[0]: one for one in reversed(call.subjects or SUBJECTS)}
    budget_s, places = (
        call.left_s(_FAST_GRACE_S),
        {"folder": str(call.folder), "archive": str(call.archive)},
    )
    asked = {"device": call.device, "subjects": dict(reversed(subjects.items())), "note": call.note, **places}
    return json.dumps(asked | {"budget_s": budget_s, "dry_run": dry_run, "card": card})


def _commands(call: Call, step: Step, artifact: Path) -> list[list[str]]:
    device = ("--device", call.device)
    names = ("--preset", step.preset, "--workload", step.workload)
    if step.kind == "fast":
        return [[call.python, "-P", "-m", "gpu_evidence.fast", _fast_json(call)]]
    if step.kind == "smoke":
        smoke = [call.python, "-P", "-m", "gpu_evidence.smoke", step.subject, call.device]
        return [[*smoke, str(call.folder / "smoke")]]
    if step.kind == "sweep":
        rows = ("--dtype", ",".join(step.dtypes), "--backends", ",".join(step.backends))
        return [call.bakeoff("sweep", step.component, *names, *rows, *device, "--no-final", "--note", call.note)]
    if step.kind == "pipeline":
        mixes = [word for mix in step.backends for word in ("--mix", mix)]
        what = (f"{step.component}:{step.preset}", *mixes)
        return [call.bakeoff("profile", *what, "--memory", *device, "--note", call.note)]
    if step.kind == "export":
        one = (f"{step.component}:{step.preset}.{step.workload}", "--dtype", *step.dtypes, "--backend", *step.backends)
        export = call.bakeoff("export", *one, *device, "--to", str(artifact))
        return [export, call.bakeoff("verify", str(artifact))]
    if step.kind == "tests":
        return [[call.python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *step.tests]]
    if step.kind == "selftest":
        return [call.bakeoff("selftest", "selftest_backends.expected:MORE", *device)]
    return [call.bakeoff("doctor")]


def _write_table(call: Call, component: str) -> None:
    """The component's table of this machine's records, in a file."""
    command = call.bakeoff("table", component)
    try:
        done = subprocess.run(
            command, env=call.environment, cwd=ROOT, capture_output=True, text=True, timeout=_TABLE_S, check=False
        )
        text = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        text = f"making the table took longer than {_TABLE_S:.0f} s"
    (call.folder / "tables" / f"{component}.txt").write_text(text, encoding="utf-8")
