"""The wheel holds all packages and works where no checkout is; the command line starts without heavy imports."""

import ast
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import asdict
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest
from lab import FAST, outcome
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bakeoff
from bakeoff.export import manifest
from bakeoff.machine import host
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import this_machine
from bakeoff.record import schema
from bakeoff.record.policy import Policy
from bakeoff.record.schema import CeilingsRecord
from bakeoff.record.source import code_hash
from bakeoff.record.store import load_all, now, save

ROOT = Path(__file__).parent.parent
FOLDERS = ("bakeoff", "backends", "export", "models")
HELP_CPU_S = 0.3


BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of a new environment that has the wheel, and the libraries of this one but not its bakeoff.

    As for a package index, the sources (a copy, in which building leaves files) give an archive, and that the wheel.
    """
    work = tmp_path_factory.mktemp("wheel")
    for name in (*FOLDERS, "docs"):
        shutil.copytree(ROOT / name, work / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (work / "source" / "tests").mkdir()
    for name in ("pyproject.toml", "MANIFEST.in", "CHANGELOG.md", "README.md", "LICENSE", "tests/test_packaging.py"):
        shutil.copy(ROOT / name, work / "source" / name)
    made = {}
    for what, sources in (("sdist", work / "source"), ("wheel", work / f"bakeoff-{bakeoff.__version__}")):
        command = [sys.executable, "-c", BUILD, what, str(work)]
        subprocess.run(command, cwd=sources, check=True, stdout=subprocess.DEVNULL)
        (made[what],) = work.glob("*.tar.gz" if what == "sdist" else "*.whl")
        if what == "sdist":
            with tarfile.open(made[what]) as archive:
                assert not [name for name in archive.getnames() if "/tests" in name]
                archive.extractall(work, filter="data")
    environment = work / "environment"
    venv.create(environment)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))
    with zipfile.ZipFile(made["wheel"]) as wheel:  # of pure Python, which installing unpacks
        assert not [name for name in wheel.namelist() if ".data/" in name]
        wheel.extractall(site)
    return site


def run(installed: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python of the new environment from an empty folder, with a user's folders below `folder`."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_") and name != "PYTHONPATH"
    }
    environment |= {
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "BAKEOFF_LOCKS": str(folder / "locks"),
    }
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    python = installed.parents[2] / "bin" / "python"
    return subprocess.run(
        [str(python), "-P", *command], cwd=empty, env=environment, capture_output=True, text=True, check=False
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
    roots = {name: folder for name, folder in packages_on_disk().items() if folder in FOLDERS}
    assert stated["package-dir"] == roots
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
    others -= {"typing_extensions", "ray", "mlflow", "sqlalchemy"}  # for the type checker alone, and of extras
    assert "tabulate" in others
    assert [name for name in sorted(others) if installed.isdisjoint(map(canonicalize_name, distributions[name]))] == []


def test_wheel_holds_the_sources_and_what_they_read(installed: Path) -> None:
    for name, folder in packages_on_disk().items():
        here = {path.name: path.read_bytes() for path in (ROOT / folder).iterdir() if path.is_file()}
        there = installed.joinpath(*name.split("."))
        assert {path.name: path.read_bytes() for path in there.iterdir() if path.is_file()} == here, name
    assert {"py.typed"} <= {path.name for path in (installed / "bakeoff").iterdir()}
    assert sorted(path.name for path in installed.iterdir() if path.name != "libraries.pth") == [
        "bakeoff",
        f"bakeoff-{bakeoff.__version__}.dist-info",
    ]


def test_the_wheel_describes_itself(installed: Path) -> None:
    """What a package index shows: a page without links into a checkout, and what the package needs."""
    (found,) = distributions(name="bakeoff", path=[str(installed)])
    said = found.metadata
    assert (said["Name"], said["Version"]) == ("bakeoff", bakeoff.__version__)
    assert (said["License-Expression"], said["Description-Content-Type"]) == ("Apache-2.0", "text/markdown")
    assert {"cpu", "gpu", "tensorrt", "ray", "modelopt", "profile"} <= set(said.get_all("Provides-Extra") or [])
    assert "Typing :: Typed" in (said.get_all("Classifier") or [])
    page = str(said["Description"])  # importlib_metadata, which mlflow brings, leaves no payload
    assert page.startswith("# bakeoff")
    assert [target for target in re.findall(r"\]\(([^)]+)\)", page) if "://" not in target] == []


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


def test_wheel_sweeps_and_its_artifact_loads(installed: Path, tmp_path: Path) -> None:
    """Workers find the installed package; a record says that no checkout made it, and which code did."""
    policy = ", ".join(f"{name} = {value}" for name, value in asdict(FAST).items() if value != getattr(Policy(), name))
    (tmp_path / "bakeoff.toml").write_text(f"[suites.short]\npolicy = {{{policy.lower()}}}\n")
    runs = tmp_path / "data" / "bakeoff" / "runs"
    ceilings = (Ceiling("product", "fp32", 1, 1e15, 1e15),)  # known, so that the sweep measures none
    facts = (this_machine("cpu"), host.usable_cores(), ceilings, 0.0, host.read_host(), host.read_versions())
    save(runs, CeilingsRecord(schema.SCHEMA, now(), *facts))
    variant = ("--dtype", "fp32", "--device", "cpu")
    suite = ("@short", "--config", str(tmp_path / "bakeoff.toml"), "toy:tiny.world", *variant, "--backends", "eager")
    swept = run(installed, tmp_path, "-m", "bakeoff", "sweep", *suite, "--no-final")
    assert swept.returncode == 0, swept.stderr
    records = load_all(runs).current
    assert [outcome(one.record) for one in records] == ["ok"]
    for one in records:
        assert (one.record.commit, one.record.dirty) == ("", False)
        assert one.record.code == code_hash(), "the same files as in this checkout"
        assert one.record.versions["bakeoff"] == bakeoff.__version__
    export = ("export", "toy:tiny.world", *variant, "--backend", "torch.export", "--to", "artifact")
    exported = run(installed, tmp_path, "-m", "bakeoff", *export)
    assert exported.returncode == 0, exported.stderr
    load = "from bakeoff.export import load; engine = load('artifact'); print(*engine(**engine.sample()))"
    loaded = run(installed, tmp_path, "-c", load)
    assert (loaded.returncode, loaded.stdout) == (0, "velocity\n"), loaded.stderr


def test_a_record_in_a_checkout_of_others_has_no_commit_of_theirs(installed: Path, tmp_path: Path) -> None:
    """The working folder may be a checkout while the code is that of the wheel."""
    ask = f"from bakeoff.machine import paths; os.chdir({str(ROOT)!r}); print(paths.checkout(), paths.commit())"
    assert run(installed, tmp_path, "-c", f"import os; {ask}").stdout == f"{ROOT} ('', False)\n"


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
