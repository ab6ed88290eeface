"""Which Python runs bakeoff, and with which environment: an installed bakeoff of this tree, or links into the tree.

The tree's folders become one package by a mapping in pyproject.toml, which only an installation applies. On a host
where nothing can be installed, links lie as a wheel would lay files out, and their folder comes first on PYTHONPATH.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

_WHERE = "from importlib.util import find_spec; print(find_spec('bakeoff.backends').origin)"


def find_python(root: Path) -> str:
    """python of the folder $BIN, else of this checkout's .venv, else the one that runs this."""
    folder = Path(os.environ["BIN"]) if os.environ.get("BIN") else root / ".venv" / "bin"
    for name in ("python", "python3"):
        if (folder / name).exists():
            return str((folder / name).absolute())
    return sys.executable


def environment(python: str, root: Path, folder: Path) -> dict[str, str]:
    """This process's environment, in which `python` imports bakeoff from this tree, by links in `folder` if need be."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if not _imports_tree(python, root, found):
        site = link_packages(root, folder / "site")
        found["PYTHONSAFEPATH"] = "1"  # else `python -m bakeoff` in the tree imports its folder bakeoff/ alone
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return found


def link_packages(root: Path, site: Path) -> Path:
    """Make `site` anew with links to the packages that pyproject.toml names; returns it.

    Of the files behind links bakeoff finds the checkout and its commit.
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    shutil.rmtree(site, ignore_errors=True)
    for package, folder in settings["package-dir"].items():
        target = site / package.replace(".", "/")
        if package in {other.rpartition(".")[0] for other in settings["package-dir"]}:
            target.mkdir(parents=True)  # it holds others, which lie elsewhere
            for path in (root / folder).iterdir():
                (target / path.name).symlink_to(path)
        else:
            target.symlink_to(root / folder)
    return site


def _imports_tree(python: str, root: Path, found: dict[str, str]) -> bool:
    done = subprocess.run([python, "-P", "-c", _WHERE], env=found, cwd="/", capture_output=True, text=True, check=False)
    return done.returncode == 0 and Path(done.stdout.strip()).resolve() == (root / "backends/__init__.py").resolve()
