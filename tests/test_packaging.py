"""The wheel holds all packages and works without the checkout; the command line starts without heavy imports."""

import ast
import json
import os
import resource
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bakeoff
from bakeoff.export import manifest
from bakeoff.record import schema

ROOT = Path(__file__).parent.parent
FOLDERS = ("bakeoff", "backends", "export", "models")
HELP_CPU_S = 0.3


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources and installed into a folder of its own."""
    work = tmp_path_factory.mktemp("wheel")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, work / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, work / "source" / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(work / "dist"), str(work / "source")], check=True
    )
    (wheel,) = (work / "dist").glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(work / "site"), str(wheel)], check=True)
    return work / "site"


def run(installed: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python from an empty folder with the installed wheel before everything else, and no BAKEOFF_ variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")}
    environment |= {
        "PYTHONPATH": str(installed),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-P", *command], cwd=empty, env=environment, capture_output=True, text=True, check=False
    )


def packages_on_disk() -> dict[str, str]:
    """Package to folder, of every folder that holds Python files."""
    found = {}
    for top in FOLDERS:
        for path in (ROOT / top).rglob("*.py"):
            folder = path.parent.relative_to(ROOT)
            name = ".".join(folder.parts if top == "bakeoff" else ("bakeoff", *folder.parts))
            found[name] = str(folder)
    return found


def test_pyproject_names_every_package() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert stated["package-dir"] == packages_on_disk()
    assert sorted(stated["packages"]) == sorted(packages_on_disk())
    for folder in packages_on_disk().values():
        assert (ROOT / folder / "__init__.py").is_file()


def test_the_default_install_has_every_library_but_compilers() -> None:
    """What `bakeoff` and `export` import; the selftest's faulty compilers need their compiler."""
    imported = set()
    for path in [*(ROOT / "bakeoff").rglob("*.py"), *(ROOT / "export").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).partition(".")[0])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    distributions = packages_distributions()
    others = imported - sys.stdlib_module_names - {"bakeoff", "torch", "onnxruntime"}
    others -= {"typing_extensions", "ray"}  # for the type checker alone, and the extra of sweeps on a cluster
    assert "yaml" in others
    assert [name for name in sorted(others) if installed.isdisjoint(map(canonicalize_name, distributions[name]))] == []


def test_wheel_holds_every_source_file(installed: Path) -> None:
    for name, folder in packages_on_disk().items():
        here = {path.name for path in (ROOT / folder).glob("*.py")}
        there = {path.name for path in installed.joinpath(*name.split(".")).glob("*.py")}
        assert there == here, name
    assert sorted(path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")) == [
        "bakeoff",
        "bin",
    ]


def test_wheel_holds_the_files_of_the_html_page(installed: Path) -> None:
    assert {"page.html.j2", "page.css", "page.js"} <= {
        path.name for path in (installed / "bakeoff/report/render").iterdir()
    }


def test_wheel_works_and_is_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = "import bakeoff.worker, bakeoff.backends as other; print(bakeoff.__file__, other.__file__)"
    done = run(installed, tmp_path, "-c", where)
    assert [Path(text).is_relative_to(installed) for text in done.stdout.split()] == [True, True], done.stderr
    listed = run(installed, tmp_path, "-m", "bakeoff", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert list(json.loads(listed.stdout)["components"]) == ["wm", "image", "audio", "matrix-vae", "matrix-wm", "toy"]
    doctor = json.loads(run(installed, tmp_path, "-m", "bakeoff", "doctor", "--json").stdout)
    assert doctor["runs"] == str(tmp_path / "data" / "bakeoff" / "runs")
    assert doctor["cache"] == str(tmp_path / "cache" / "bakeoff")


def test_wheel_runs_a_worker(installed: Path, tmp_path: Path) -> None:
    """A model of one's own is described by a worker process, which must find the installed package too."""
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef model():\n    return torch.nn.Linear(2, 3), (torch.ones(4, 2),)\n"
    )
    done = run(
        installed, tmp_path, "-m", "bakeoff", "sweep", f"{tmp_path}/mine.py:model", "--device", "cpu", "--dry-run"
    )
    assert done.returncode == 0, done.stderr
    assert "eager" in done.stdout


def test_records_of_an_installed_wheel_are_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    unsupported = ("sweep", "toy", "--backends", "inductor[mode=reduce-overhead]", "--dtype", "fp32", "--device", "cpu")
    done = run(installed, tmp_path, "-m", "bakeoff", *unsupported)
    assert done.returncode == 3, done.stderr
    (path,) = (tmp_path / "data" / "bakeoff" / "runs").glob("*/records/*.json")
    record = json.loads(path.read_bytes())
    assert (record["commit"], record["dirty"]) == ("", False)
    assert record["versions"]["bakeoff"]


def test_the_version_is_that_of_the_project(tmp_path: Path) -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    command = [sys.executable, "-m", "bakeoff", "--version"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"bakeoff {stated}\n", "")


def test_the_changelog_begins_with_this_version_and_its_formats() -> None:
    newest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")[2].partition("\n## ")[0]
    assert newest.startswith(f"{bakeoff.__version__} - ")
    assert schema.SCHEMA == manifest.SCHEMA
    assert f"schema {schema.SCHEMA}, as manifests" in newest


def test_help_is_quick() -> None:
    """CPU seconds, which depend on what is imported and not on other processes."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-P", "-m", "bakeoff", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) < HELP_CPU_S


@pytest.mark.parametrize(
    "command", [["--help"], ["--version"], ["sweep", "--help"], ["selftest", "--help"]], ids=" ".join
)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-m", "bakeoff", *command],
        check=True,
        capture_output=True,
        text=True,
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert imported.isdisjoint({"torch", "numpy", "scipy", "msgspec", "psutil", "tabulate"})
