"""Imports go one way along the folders listed in ORDER, and the parent process never imports torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "tensorrt", "torch_tensorrt", "onnxruntime", "openvino", "torchao", "triton", "scipy", "vl_convert")
FOLDERS = ("models", "backends", "export", "bakeoff")
"""At the top of the checkout; all install below the namespace `bakeoff`."""
ORDER = (
    "models",
    "backends",
    "machine",
    "export",
    "variant",
    "mix",
    "record",
    "trace",
    "advice",
    "monitor",
    "process",
    "race",
    "plan",
    "sweeps",
    "bring",
    "pipeline",
    "artifact",
    "selftest",
    "report",
    "profile",
    "live",
    "tuned",
    "cluster",
    "cli",
    "__main__",
)
"""Each imports only itself and those before it."""
ALLOWED = {place: set(ORDER[: index + 1]) for index, place in enumerate(ORDER)}
ALLOWED["backends"] -= {"machine"}
ALLOWED["worker"] = set(ORDER[: ORDER.index("plan")]) | {"worker", "profile"}
"""Another process: what it shares with the parent is below `plan`. A loop's units take the ranges of `profile`."""
FILES = sorted(file.relative_to(ROOT) for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
TORCH_TUNED = {"module.py", "program.py"}
TORCH_MODELS = {"weights.py", "checkpoint.py", "tables.py"}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def imports(file: Path, everywhere: bool = True) -> Iterator[str]:
    """Absolute names of modules that a file imports; without `everywhere` only those that importing it imports."""
    pending: list[ast.AST] = [parsed(file)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if not everywhere and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if not everywhere and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)


def may_import_torch(file: Path) -> bool:
    """Workers, the files of models/ that build, load or replay networks, and those of `tuned`, which stand in for
    functions of modules in a user's process, where torch is loaded: that folder's entry, which `bakeoff.apply` imports,
    imports none before it is called."""
    folder = file.parts[0]
    if folder == "bakeoff":
        return file.parts[1] == "worker" or (file.parts[1] == "tuned" and file.name in TORCH_TUNED)
    return folder == "models" and (file.name in TORCH_MODELS if len(file.parts) == 2 else file.name != "spec.py")


def test_there_are_files_to_look_at() -> None:
    assert {file.parts[0] for file in FILES} == set(FOLDERS)
    assert Path("models/toy/network.py") in FILES
    assert "torch" in set(imports(Path("models/toy/network.py"), everywhere=False))
    assert "torch" in set(imports(Path("backends/inductor.py")))
    assert "torch" not in set(imports(Path("backends/inductor.py"), everywhere=False))


def place_of(file: Path) -> str:
    """The folder of the flow that a file belongs to; of a file beside those folders its own name."""
    return file.parts[0] if file.parts[0] != "bakeoff" else file.parts[1].removesuffix(".py")


def test_imports_go_one_way() -> None:
    for file in FILES:
        own = {name.split(".")[1] for name in imports(file) if name.startswith("bakeoff.")}
        place = place_of(file)
        assert place == "__init__" or own <= ALLOWED[place], file
        bare = [name for name in imports(file) if name.partition(".")[0] in ("models", "backends", "export")]
        assert bare == [], f"{file}: a bare import is a second copy of the registry"


def test_every_folder_of_the_flow_is_in_the_order() -> None:
    assert {place_of(file) for file in FILES} - {"__init__"} == {*ORDER, "worker"}


def test_only_workers_and_networks_import_torch() -> None:
    for file in FILES:
        heavy = {name.partition(".")[0] for name in imports(file, everywhere=False)} & set(HEAVY)
        assert heavy <= ({"torch"} if may_import_torch(file) else set()), file


def test_nothing_but_a_worker_imports_the_worker() -> None:
    for file in (file for file in FILES if "worker" not in file.parts):
        assert [name for name in imports(file) if f"{name}.".startswith("bakeoff.worker.")] == [], file


@pytest.mark.parametrize(
    "script",
    [
        "from bakeoff.plan.plan import Request, make_plan; make_plan(Request('toy', device='cpu', suite='full'))",
        "from bakeoff.models import *; from bakeoff import models; "
        "[models.resolve_component(name) for name in models.component_names()]",
        "from bakeoff import backends; [backends.resolve_backend(name) for name in backends.backend_names()]",
        "import bakeoff.export, bakeoff.artifact.export, bakeoff.report.pages.artifact",
        "import bakeoff.sweeps.run, bakeoff.process.supervisor, bakeoff.selftest.run",
        "import bakeoff.report.pages.history, bakeoff.report.figures",
        "from bakeoff.record.source import pipeline_hash; [pipeline_hash(name) for name in ('owl', 'matrix')]",
        "import bakeoff.cli",
    ],
    ids=["plan", "models", "backends", "export", "sweep", "report", "hash", "cli"],
)
def test_the_parent_imports_no_torch(script: str, tmp_path: Path) -> None:
    check = f"import sys; {script}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["sweep", "--help"], ["sweep", "wm", "--dry-run"], ["list"]])
def test_the_command_line_imports_no_torch(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bakeoff", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "bakeoff.cli" in imported
    assert not imported & {"torch", "vl_convert", "scipy.stats"}


def test_a_reference_and_a_count_of_work_import_no_dynamo(tmp_path: Path) -> None:
    """torch imports it for the dispatch modes of both, unless told not to: seconds at each start."""
    script = (
        "import sys, torch; from bakeoff.process.jobs import ReferenceJob, Subject; "
        "from bakeoff.worker.work import count; from bakeoff.worker.reference.make import make_reference; "
        "_, counted = count(torch.nn.Linear(4, 4), (torch.zeros(2, 4),)); "
        "from bakeoff.models.toy.spec import Config; from bakeoff.record.kept import keep_work; "
        "keep_work('toy', Config(), 'world', 1, counted.work(())); "
        "subject = Subject('toy', 'tiny', 'world', 1, 0, 0, '', 'cpu', 1); "
        "make_reference(ReferenceJob(subject, ('fp32', 'bf16'), 'made'), lambda *_: None); "
        "print(counted.flops, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["64 False"], done.stderr
