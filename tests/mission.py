"""Run each thing that this product promises by name once, and write the shape of what came out.

    python tests/mission.py OUT [--only components,export] [--work FOLDER]
    python tests/mission.py --diff BEFORE AFTER

For a change of scope: run it on the state before and on the state after, and compare. What stays has the same commands
and exit codes, columns, statuses of rows, keys of JSON and files. Times, names of machines and hashes are left out, so
that two runs on one host differ by the code alone. It runs on a CPU, in about 15 minutes with two cores; what needs a
GPU is a dry run, which says why it cannot run here.

OUT gets a file for each item and `summary.json` with all exit codes. FOLDER keeps caches and files between runs, such
as those of single items; by default they are deleted. Rows are timed for a moment only (tests/support/fast_bakeoff.py),
but for finals, pipelines and traces, which have no shorter clocks.
"""

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LONGEST_S = 1500

CHECKPOINT = """
import sys
sys.path.insert(0, "{root}/tests/support")
from eager_loops import module
from safetensors.torch import save_file
save_file(dict(module("audio", "tiny", "decode").state_dict()), "audio.safetensors")
"""
LOAD = """
import json
from bakeoff.export import load
artifact = load("artifact")
outputs = artifact(**artifact.sample())
print(json.dumps({name: list(tensor.shape) for name, tensor in outputs.items()}))
"""
SWEEP = """
import json, torch
from torch import nn
import bakeoff
network = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 64)).eval()
inputs = {"input": torch.randn(8, 64)}
swept = bakeoff.sweep(network, inputs, name="small", backends=["eager", "torch.export"], dtype="fp32", device="cpu",
                      final=False)
print(swept.table())
"""
SESSION = """
import time
import torch
from bakeoff.profile import Profiler, Settings, phase
import torch.distributed as dist
settings = Settings(enabled=True, report_format="both", output_dir="sessions", cpu_monitor_interval=0.5,
                    gpu_monitor_interval=0.5)
RANKS = False
if RANKS:
    dist.init_process_group("gloo")
profiler = Profiler(settings, device="cpu", **({"parallelism": "model"} if RANKS else {}))
with profiler.session("toy", tags={"blocks": 40}) as session:
    session.parameters("model", torch.nn.Linear(64, 64))
    for block in range(40):
        with session.unit(frames=12, latents=3, kind="steady" if block else "opening"):
            with session.phase("denoise"):
                for step in range(2):
                    with session.step(index=step, timestep=1000 - step):
                        part = torch.randn(1024, 1024).square()
                if RANKS and dist.get_rank() == 1:
                    time.sleep(0.1)  # a straggler on any host
            with session.collective("all_reduce"):
                if RANKS:
                    dist.all_reduce(part)
            with phase("decode"):
                session.sample("depth", block)
print(len(session.files))
if RANKS:
    dist.destroy_process_group()
"""
TRACES = """
import collections, gzip, json, pathlib
found = collections.defaultdict(set)
for path in pathlib.Path("traces").rglob("*.json*"):
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = json.loads(data)
    if isinstance(trace, dict) and "traceEvents" in trace:
        found["keys"] |= set(trace)
        for event in trace["traceEvents"]:
            found["categories"].add(str(event.get("cat")))
            if event.get("cat") == "bakeoff" and event["ph"] == "X":
                found[f"level{event['tid']}"].add(" ".join([event["name"], *event.get("args", {})]))
print(json.dumps({key: dict.fromkeys(sorted(values)) for key, values in sorted(found.items())}))
"""

SCRIPTS = {"checkpoint": CHECKPOINT, "load": LOAD, "live": SWEEP, "session": SESSION, "traces": TRACES}
SCRIPTS["ranks"] = SESSION.replace("RANKS = False", "RANKS = True")
TOY = "toy --workload world --device cpu --dtype fp32"
EXPORTED = "toy:tiny.world --device cpu --dtype fp32"
TINY = "--preset tiny --device cpu --dtype fp32 --backends eager"
OWL = "owl:tiny --mix eager --units 5 --device cpu"
ON_GPU = "cudagraph,tensorrt,tensorrt[external=layers.0],tensorrt-aot,tensorrt-aot[external=layers.0]"
ITEMS = {
    "golden": ["exact python -m tests.golden glob:{root}/tests/golden/*.safetensors"],
    "list": ["exact bakeoff list", "bakeoff list wm --json"],
    "components": [
        f"fast sweep wm image audio matrix-vae matrix-wm {TINY} --json",
        "bakeoff table",
        "bakeoff table --json",
        "bakeoff report --html report.html",
    ],
    "checkpoint": [
        "python checkpoint.py",
        f"fast sweep audio {TINY} --checkpoint audio.safetensors --json",
        f"fast sweep audio {TINY} --checkpoint gone.pt",
    ],
    "gpu-backends": [
        f"exact bakeoff sweep {TOY} --backends {ON_GPU} --dry-run",
        "exact bakeoff sweep toy --device cuda --dry-run",
    ],
    "compilers": [f"fast sweep {TOY} --backends eager,inductor,aoti --json", "bakeoff table toy"],
    "engines": [f"fast sweep {TOY} --backends openvino,onnxruntime --json", "bakeoff table toy"],
    "quantised": [
        f"fast sweep {TOY} --backends int8[least=0]+inductor,fp8[kind=per-row]+inductor --json",
        "bakeoff table toy",
    ],
    "parity": [
        f"fast sweep {TOY} --backends eager --json",
        "bakeoff show glob:runs/*/records/*.json --json",
        "bakeoff show glob:runs/*/records/*.json",
    ],
    "export": [
        f"bakeoff export {EXPORTED} --backend torch.export --to artifact --json",
        "bakeoff verify artifact --json",
        "bakeoff verify artifact",
        "bakeoff inspect artifact --json",
        "python load.py",
    ],
    "cpp": [
        f"bakeoff export {EXPORTED} --backend aoti --to artifact --json",
        "cmake -S {root}/examples/deploy/cpp -B build -DCMAKE_PREFIX_PATH={torch}",
        "cmake --build build",
        "build/rollout artifact",
    ],
    "history": [f"fast sweep {TOY} --backends eager --json", "bakeoff history", "bakeoff history --check"],
    "pipeline": [
        f"bakeoff pipeline {OWL} --json",
        "bakeoff table owl",
        "bakeoff table owl --json",
        "exact bakeoff pipeline matrix:tiny --mix eager --device cpu --dry-run",
    ],
    "profile": [
        f"bakeoff profile {OWL} --level 5 --memory --trace traces --monitor",
        "python traces.py",
    ],
    "compiler-log": ["bakeoff profile toy:tiny.world --mix toy=inductor/fp32 --device cpu --units 5 --compiler"],
    "sessions": [
        "python session.py",
        "bakeoff session show glob:sessions/**/*.session.json",
        "bakeoff session show glob:sessions/**/*.session.json --json",
        "bakeoff session show glob:sessions/**/*.session.json --html",
    ],
    "ranks": [
        "python -m torch.distributed.run --nproc-per-node 2 ranks.py",
        "bakeoff session aggregate glob:sessions/*-*",
        "bakeoff session aggregate glob:sessions/*-* --json",
    ],
    "final": [f"bakeoff sweep {TOY} --backends eager,torch.export --json", "bakeoff table toy"],
    "compare": [
        "bakeoff compare toy:tiny.world/eager/fp32@cpu toy:tiny.world/torch.export/fp32@cpu --json",
        "bakeoff compare --undecided",
    ],
    "gate": [
        f"fast --runs before sweep {TOY} --backends eager --processes 5 --json",
        f"fast gate {TOY} --backends eager --against before --json --markdown gate.md --junit gate.xml",
    ],
    "python": ["python live.py"],
}
"""Steps of each item, one after the other in one folder. The first word is a command: `fast` is `bakeoff` with short
clocks, and before `exact` ones, whose lines depend on no times, these are kept too. `glob:` stands for the files of a
pattern."""
UNDECIDED = {"gate": {0, 3}, "compare": {0, 1}}
"""Exit codes of commands that depend on how busy the host is."""
UNSTABLE = {"ok", "unstable"}
LEFT_OUT = re.compile(r"^\w+\.py$|^build/|__pycache__|\.lock$|artifact/.*/data/|ceilings|roofline")
"""Files and records that do not count; ceilings are measured on an idle host alone."""
NOISY = {"findings", "alarms", "notes", "device_state"}
"""Keys of JSON below which a busy host has other values."""


def run_item(name: str, work: Path, cache: Path) -> dict[str, Any]:
    """Run an item's steps in a fresh folder; return the shape of each one's output, and the files that they left."""
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for script, text in SCRIPTS.items():
        (folder / f"{script}.py").write_text(text.replace("{root}", str(ROOT)), encoding="utf-8")
    own = {"BAKEOFF_CACHE": cache, "BAKEOFF_LOCKS": work / "locks", "BAKEOFF_RUNS": folder / "runs"}
    environment = {**os.environ, **{key: str(value) for key, value in own.items()}, "COLUMNS": "400"}
    before = set((cache / "traces").rglob("*"))
    steps = [run_step(step, folder, environment) for step in ITEMS[name]]
    files = files_of(folder.rglob("*"), folder) | files_of(set((cache / "traces").rglob("*")) - before, cache)
    statuses = {row: status for row, status in sorted(set(recorded(folder))) if not LEFT_OUT.search(row)}
    return {"steps": steps, "rows": statuses, "files": sorted(file for file in files if not LEFT_OUT.search(file))}


def files_of(paths: Iterable[Path], folder: Path) -> set[str]:
    """Return the names of the files among these, within the folder."""
    names = (plain(path.relative_to(folder).as_posix()) for path in paths if path.is_file())
    return {re.sub(r"(torch_trace)_\w+", r"\1", name) for name in names}


def run_step(step: str, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    exact, words = step.startswith("exact "), step.removeprefix("exact ").split()
    command = [part for word in words for part in expanded(word, folder)]
    program = {
        "bakeoff": [sys.executable, "-m", "bakeoff"],
        "fast": [sys.executable, str(ROOT / "tests/support/fast_bakeoff.py")],
        "python": [sys.executable],
    }.get(command[0], [command[0]])
    if shutil.which(program[0]) is None and not (folder / program[0]).exists():
        return {"command": step, "skipped": f"no {program[0]}"}
    own = ROOT if "tests.golden" in command else folder
    ran = subprocess.run(
        [*program, *command[1:]],
        cwd=own,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    (folder / "log.txt").open("a").write(f"$ {step}\n{ran.stdout}\n{ran.stderr}\n")
    allowed = UNDECIDED.get(words[1] if len(words) > 1 else "", {ran.returncode})
    code = "|".join(map(str, sorted(allowed))) if ran.returncode in allowed else str(ran.returncode)
    found: dict[str, Any] = {"command": step, "exit": code, "codes": sorted(set(re.findall(CODE, ran.stderr, re.M)))}
    try:
        found["json"] = shape(json.loads(ran.stdout))
    except ValueError:
        found["tables"] = list(columns(ran.stdout))
        if exact:
            found["lines"] = [plain(line) for line in ran.stdout.splitlines() if line.strip("- ")]
    return found


CODE = r"\[([a-z]+(?:-[a-z]+)*)\]$"


def expanded(word: str, folder: Path) -> list[str]:
    """Return a word of a command with its places filled in; for a pattern, the files that fit."""
    import torch

    for name, value in (("root", str(ROOT)), ("torch", torch.utils.cmake_prefix_path)):
        word = word.replace(f"{{{name}}}", value)
    if not word.startswith("glob:"):
        return [word]
    pattern = Path(word.removeprefix("glob:"))
    base, relative = (Path("/"), pattern.relative_to("/")) if pattern.is_absolute() else (folder, pattern)
    return sorted(map(str, base.glob(str(relative)))) or [word]


def plain(text: str) -> str:
    """Return text without times, hashes and numbers that stand alone."""
    text = re.sub(r"\d{8}T\d{6}Z?(-[0-9a-f]{6,})?", "TIME", text)
    text = re.sub(r"(?<![a-zA-Z])(?=[a-f]*\d)[0-9a-f]{6,}(-[0-9a-f]+)*(?![a-zA-Z])", "HASH", text)
    text = re.sub(r"(?<![\w.\[=-])\d[\d,.]*(e[-+]\d+)?(?=[\s%)(/:]|x\b|$)", "#", text)
    return re.sub(r"[ \t]+", " ", text).strip()


def columns(text: str) -> Iterator[list[str]]:
    """Yield the column titles of each table, and the title of each section: the line above a rule."""
    lines = text.splitlines()
    for title, rule in pairwise(lines):
        if re.fullmatch(r"-{2,}(  +-+)+|={3,}", rule.strip()):
            yield [plain(one) for one in re.split(r"\s{2,}", title.strip())]
        elif re.fullmatch(r"\|?[ :]*-+[-| :]*\|[-| :]*", rule):
            yield [plain(one) for one in title.strip("| ").split("|")]


def shape(value: Any, key: str = "") -> Any:
    """Return JSON with its keys alone: any value that is no container is "value", and a list has one element."""
    if key == "status":
        return "ok|unstable" if value in UNSTABLE else value
    if key in NOISY or not isinstance(value, dict | list):
        return "value"
    if isinstance(value, list):
        return merged([shape(one) for one in value])
    found: dict[str, Any] = {}
    for name, one in value.items():
        own, made = plain(name), shape(one, name)
        found[own] = made if own not in found else (merged([found[own], made]) or [made])[0]
    return dict(sorted(found.items()))


def merged(shapes: list[Any]) -> list[Any]:
    """Return a list with one shape that has the keys of all."""
    containers = [one for one in shapes if isinstance(one, dict)]
    if containers:
        keys = sorted({key for one in containers for key in one})
        return [{key: merged([one[key] for one in containers if key in one])[0] for key in keys}]
    inner = [one for each in shapes if isinstance(each, list) for one in each]
    if any(isinstance(one, list) for one in shapes):
        return [merged(inner)]
    return ["|".join(sorted({str(one) for one in shapes}))] if shapes else []


def recorded(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the variant or the mix of each record below a folder, with its status."""
    for path in folder.rglob("records/*.json"):
        record = json.loads(path.read_bytes())
        status = (record.get("measurement") or record).get("status", "")
        name = re.sub(r"^\d{8}T\d{6}Z_|_[0-9a-f]{12}$", "", path.stem)
        yield plain(name), "ok|unstable" if status in UNSTABLE else str(status)


def compare(before: Path, after: Path) -> int:
    """Print how two result folders differ; return 1 if they do."""
    names = sorted({path.name for folder in (before, after) for path in folder.glob("*.json")})
    different = False
    for name in names:
        sides = [
            (folder / name).read_text().splitlines() if (folder / name).exists() else [] for folder in (before, after)
        ]
        lines = list(difflib.unified_diff(*sides, f"before/{name}", f"after/{name}", lineterm="", n=4))
        different |= bool(lines)
        print(*lines, sep="\n", end="\n" if lines else "")
    return int(different)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, nargs="+", help="folder of results; with --diff two")
    parser.add_argument("--only", default=",".join(ITEMS), help="items, comma-separated")
    parser.add_argument("--work", type=Path, help="folder that keeps caches and files")
    parser.add_argument("--diff", action="store_true", help="compare the results of two folders")
    arguments = parser.parse_args()
    if arguments.diff:
        return compare(*arguments.out)
    (out,) = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    chosen = arguments.only.split(",")
    if unknown := sorted(set(chosen) - set(ITEMS)):
        parser.error(f"there is no item {unknown[0]}; give {', '.join(ITEMS)}")
    with tempfile.TemporaryDirectory(prefix="mission-") as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        for name in chosen:
            started = time.monotonic()
            found = run_item(name, work, work / "cache")
            (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            codes = [step.get("exit", "skipped") for step in found["steps"]]
            print(f"{name}: exit {', '.join(codes)}; {time.monotonic() - started:.0f} s", flush=True)
    made = {path.stem: json.loads(path.read_bytes()) for path in sorted(out.glob("*.json")) if path.stem != "summary"}
    summary = {name: [step.get("exit", "skipped") for step in one["steps"]] for name, one in made.items()}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
