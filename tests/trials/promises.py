"""How near the time of a unit comes to what was promised of it, and what each part of the promise brings.

    python tests/trials/promises.py WORK [--only toy page] [--runs 2] [--apart 3600] [--pools]

Sweeps what the mixes below need (records, caches and files go to the folder WORK), then runs each loop's mixes in
pairs, as a budget runs its two best: timed first, promised, measured. A second run of a pair begins `--apart` seconds
after the first.
With `--pools` each pair of `mixed` and `page` runs again under other settings of waiting and other numbers of threads.
Each pair adds two lines to tests/trials/promises.jsonl, so the same command goes on where it stopped; then
docs/trials/promises.md is written anew. Run it alone on the machine.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from promises_page import PAGE, RECORD, page, read

from bakeoff.machine.files import write_atomically
from bakeoff.mix import SlotChoice
from bakeoff.pipeline.forecast import forecasts
from bakeoff.pipeline.plan import MixPlan, PipelinePlan, make_pipeline_plan, sweep_of
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import run_pipeline
from bakeoff.process.environment import PASSIVE
from bakeoff.record.forecast import BETWEEN, typical
from bakeoff.record.objective import OF_BUDGET, parse_objective
from bakeoff.record.pipeline import Budget, Forecast
from bakeoff.sweeps.progress import Unheard

HERE = Path(__file__).resolve().parent
UNITS = 200
ACTIVE = {"OMP_WAIT_POLICY": "active", "KMP_BLOCKTIME": "infinite"}
SETTINGS: Mapping[str, tuple[Mapping[str, str], int]] = {
    "": ({}, 0), "passive": (PASSIVE, 0), "active": (ACTIVE, 0), "1 thread": ({}, 1),
}  # fmt: skip
"""Name of a setting to the variables of its workers, and the threads (0: all cores)."""


@dataclass(frozen=True)
class Tried:
    """A loop, and its mixes in pairs."""

    reference: str
    pairs: Sequence[tuple[str, str]]
    preset: str = ""
    pools: Sequence[tuple[str, str]] = field(default=())
    """Pairs of `--pools`: of one pool, and of two."""


def filled(*slots: str) -> Any:
    """Function from backends to a mix in fp32; the last backend fills the slots that are left."""
    return lambda *backends: ",".join(
        f"{slot}={backends[min(place, len(backends) - 1)]}/fp32" for place, slot in enumerate(slots)
    )


_owl, _matrix, _toy = filled("wm", "image", "audio"), filled("wm", "decoder"), filled("world", "stream")
_page, _mixed, _windows = (
    filled("denoiser", "decoder"),
    filled("denoiser", "decoder", "control"),
    filled("block", "head"),
)
_FREEZING = "inductor[freezing]"
LOOPS: Mapping[str, Tried] = {
    "toy": Tried(
        f"{HERE.parent / 'support' / 'toy_loops.py'}:Toy",
        (
            (_toy("inductor"), _toy("openvino")),
            (_toy("openvino", "inductor"), _toy("inductor", "openvino")),
            (_toy("eager"), _toy(_FREEZING, "eager")),
        ),
        preset="tiny",
    ),
    "page": Tried(
        "mine.py:Loop",
        (
            (_page("inductor"), _page("openvino")),
            (_page("openvino", "inductor"), _page("inductor", "openvino")),
            (_page("eager"), _page(_FREEZING, "eager")),
        ),
        pools=(
            (_page("openvino"), _page("openvino", "inductor")),
            (_page("inductor"), _page("openvino[threads=1]", "inductor")),
        ),
    ),
    "mixed": Tried(
        f"{HERE / 'promise_loops.py'}:Mixed",
        (
            (_mixed("inductor"), _mixed("openvino")),
            (_mixed("openvino", "inductor"), _mixed("inductor", "openvino", "eager")),
            (_mixed("eager"), _mixed("openvino", "eager", "inductor")),
        ),
        pools=(
            (_mixed("openvino"), _mixed("openvino", "inductor")),
            (_mixed("inductor"), _mixed("openvino[threads=1]", "inductor")),
        ),
    ),
    "windows": Tried(
        f"{HERE / 'promise_loops.py'}:Windows",
        (
            (_windows("onnxruntime"), _windows("inductor")),
            (_windows("onnxruntime", "inductor"), _windows("inductor", "onnxruntime")),
            (_windows("eager"), _windows("openvino", "onnxruntime")),
        ),
        pools=((_windows("onnxruntime"), _windows("onnxruntime", "inductor")),),
    ),
    "owl": Tried("owl", ((_owl("inductor", "openvino"), _owl("inductor")),), preset="200m"),
    "matrix": Tried("matrix", ((_matrix("inductor", "openvino"), _matrix("inductor")),), preset="cpu"),
}


def planned(tried: Tried, pair: Sequence[str], threads: int, runs: Path) -> PipelinePlan:
    """The plan of a pair of mixes, as a budget that found them would run them."""
    request = PipelineRequest(
        tried.reference, preset=tried.preset, mixes=tuple(pair), device="cpu", units=UNITS, threads=threads
    )
    plan = make_pipeline_plan(request, runs, Printed())
    promised = tuple(mix.forecast for mix in plan.mixes if mix.forecast is not None)
    budget = Budget(parse_objective("mean", OF_BUDGET), None, plan.loop.steady.frames, len(promised), promised)
    return replace(plan, request=replace(plan.request, budget=budget))


class Printed:
    """A Progress that prints what is said, and shows nothing else."""

    def start(self, _position: int, _total: int, what: str) -> Unheard:
        print(f"  {what}", flush=True)
        return Unheard()

    def say(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def result(self, _record: Any) -> None: ...
    def ranked(self, _to_come: str) -> None: ...
    def expect(self, _seconds: float | None, _limit_s: float = 0.0, /) -> None: ...


def sweep(tried: Tried, pair: Sequence[str], threads: int, runs: Path) -> None:
    """Sweep what a pair's mixes lack: the modules of a user's loop all together, components of the lab one by one."""
    plan, commands = planned(tried, pair, threads, runs), dict[str, set[str]]()
    for slot in plan.loop.slots:
        choices = {choice for mix in plan.mixes for choice in mix.mix.slots if choice.slot == slot.name}
        lacking = choices - forecasts(plan, slot.name).keys()
        names = {choice.backend if "[" in choice.backend else f"{choice.backend}[]" for choice in lacking}
        whole = f"sweep {shlex.quote(tried.reference)} --device cpu" + (f" --threads {threads}" if threads else "")
        commands.setdefault(whole if slot.users else sweep_of(plan, slot), set()).update(names)
    for text, backends in commands.items():
        if backends:
            command = [*shlex.split(text), "--backends", ",".join(sorted(backends)), "--dtype", "fp32", "--no-final"]
            print(f"  bakeoff {shlex.join(command)}", flush=True)
            subprocess.run([sys.executable, "-m", "bakeoff", *command], check=False, stdout=subprocess.DEVNULL)


def alone_ms(plan: PipelinePlan, slots: Sequence[SlotChoice], means: bool) -> float | None:
    """What the calls of a mix take by records outside of a loop; by medians, as was promised before means were."""
    found = [forecasts(plan, choice.slot, means=means, in_loop=False).get(choice) for choice in slots]
    return None if None in found else sum(each.parts_ms[each.slots.partition("=")[0]] for each in found if each)


def after_pause_ms(mix: MixPlan, plan: PipelinePlan) -> float | None:
    """What the calls of a mix take by the calls of records before which the clock paused or overwrote memory."""
    total_ms = 0.0
    for key, count in plan.loop.calls().items():
        clock = mix.parts[key].record.measurement.latency if key in mix.parts else None
        if clock is None or not clock.after_pause_ns:
            return None
        total_ms += count * fmean(clock.after_pause_ns) / 1e6
    return total_ms


def tried_pair(name: str, number: int, setting: str, pair: tuple[str, str], runs: Path) -> list[dict[str, Any]]:
    """Sweep, promise, time again and run a pair; return a line for each mix, none if it was interrupted."""
    tried, (environment, threads) = LOOPS[name], SETTINGS[setting]
    sweep(tried, pair, threads, runs)
    plan = planned(tried, pair, threads, runs)
    plan = replace(
        plan, mixes=tuple(replace(mix, environment={**mix.environment, **environment}) for mix in plan.mixes)
    )
    by_records: dict[str, Forecast | None] = {str(mix.mix): mix.forecast for mix in plan.mixes}
    medians, means = ({str(mix.mix): alone_ms(plan, mix.mix.slots, of) for mix in plan.mixes} for of in (False, True))
    paused = {str(mix.mix): after_pause_ms(mix, plan) for mix in plan.mixes}
    load, lines = os.getloadavg()[0], []
    done = run_pipeline(plan, runs, f"promises {number} {setting}".strip(), False, Printed())
    if done.interrupted:
        raise KeyboardInterrupt
    for entry in done.stored:
        record, mix = entry.record, str(entry.record.mix)
        unit, promise, anchored = typical(record), by_records[mix], record.forecast
        lines.append(
            {
                "loop": name,
                "run": number,
                "setting": setting,
                "pair": list(pair),
                "mix": record.mix.variants,
                "status": record.status,
                "created": record.created,
                "load": round(load, 2),
                "measured_ms": unit.unit_ms if unit is not None else None,
                "medians_ms": medians[mix],
                "means_ms": means[mix],
                "after_pause_ms": paused[mix],
                "records_ms": promise.ms if promise is not None else None,
                "interval_ms": promise.interval if promise is not None else None,
                "between_ms": promise.parts_ms.get(BETWEEN) if promise is not None else None,
                "anchored_ms": anchored.ms if anchored is not None and anchored.anchored else None,
                "passive": PASSIVE.items() <= record.environment.items(),
                "run_between_ms": sum(line.ms for line in unit.lines if not line.slot) if unit is not None else None,
            }
        )
    return lines


def _of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["loop"], line["run"], line["setting"], line["pair"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", nargs="*", default=[*LOOPS])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--apart", type=float, default=3600.0)
    parser.add_argument("--pools", action="store_true")
    asked = parser.parse_args()
    work = asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    os.environ.update(BAKEOFF_CACHE=str(work / "cache"), BAKEOFF_RUNS=str(work / "runs"))
    os.chdir(work)
    guide = (HERE.parents[1] / "docs" / "your-pipeline.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (work / "mine.py").write_text(next(each for each in blocks if each.startswith("# mine.py")), encoding="utf-8")
    sys.path.append(str(work))
    if asked.pools:
        todo = [(name, 1, setting, pair) for name in asked.only for pair in LOOPS[name].pools for setting in SETTINGS]
    else:
        numbers = range(1, asked.runs + 1)
        todo = [(name, number, "", pair) for number in numbers for name in asked.only for pair in LOOPS[name].pairs]
    for name, number, setting, pair in todo:
        known = read()
        if any(
            (each["loop"], each["run"], each["setting"], each["pair"]) == (name, number, setting, list(pair))
            for each in known
        ):
            continue
        before = [each["created"] for each in known if (each["loop"], each["pair"]) == (name, list(pair))]
        if number > 1 and before:
            since_s = (datetime.now(UTC) - datetime.fromisoformat(max(before))).total_seconds()
            time.sleep(max(0.0, asked.apart - since_s))
        print(f"{name}, run {number} {setting}: {' and '.join(pair)}", flush=True)
        lines = tried_pair(name, number, setting, pair, work / "runs")
        write_atomically(RECORD, "".join(json.dumps(each) + "\n" for each in [*read(), *lines]).encode())
        write_atomically(PAGE, page(read()).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
