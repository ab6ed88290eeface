"""The sets of constraints against pyproject.toml and against what tools/resolve-constraints last resolved them to."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from bakeoff.machine.host import DISTRIBUTIONS

ROOT = Path(__file__).resolve().parents[1]
RESOLVED = {
    "constraints.txt": ROOT / "tools/resolved/torch-2.13.txt",
    "constraints-torch-2.11.txt": ROOT / "tools/resolved/torch-2.11.txt",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DIFFERING = {
    "cuda-toolkit",
    "onnxruntime-gpu",
    "setuptools",
    "tensorrt",
    "tensorrt-cu13",
    "tensorrt-cu13-bindings",
    "tensorrt-cu13-libs",
    "torch",
    "torch-tensorrt",
}


def pins(path: Path) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    found: dict[str, str] = {}
    for line in filter(None, lines):
        name, version = re.fullmatch(r"([\w.-]+)==([\w.+]+)", line).groups()  # type: ignore[union-attr]
        assert canonicalize_name(name) not in found
        found[canonicalize_name(name)] = version
    return found


def requirements(*extras: str) -> list[Requirement]:
    texts: Iterable[str] = PROJECT["dependencies"]
    for extra in extras:
        texts = [*texts, *PROJECT["optional-dependencies"][extra]]
    return [Requirement(text) for text in texts]


def unmet(extras: tuple[str, ...], found: Mapping[str, str]) -> list[str]:
    return [
        str(one)
        for one in requirements(*extras)
        if canonicalize_name(one.name) not in found or found[canonicalize_name(one.name)] not in one.specifier
    ]


@pytest.mark.parametrize("name", RESOLVED)
def test_pins_are_what_they_resolve_to(name: str) -> None:
    """A pin of the set is either what is installed, or of a package that a host with an NVIDIA GPU does not install."""
    pinned, resolved = pins(ROOT / name), pins(RESOLVED[name])
    assert {one: version for one, version in pinned.items() if resolved.get(one, version) != version} == {}
    not_installed = {"onnxruntime", "openvino", "openvino-telemetry"}
    assert set(pinned) - set(resolved) == (not_installed if name == "constraints.txt" else set())


@pytest.mark.parametrize("name", RESOLVED)
def test_pins_and_resolved_versions_meet_every_requirement(name: str) -> None:
    extras = ("gpu", "tensorrt", "modelopt", "ray", "mlflow", "test", "lint")
    assert unmet(extras, pins(RESOLVED[name])) == []
    assert unmet(extras, pins(ROOT / name)) == []


@pytest.mark.parametrize("name", RESOLVED)
def test_torch_tensorrt_is_made_for_this_torch(name: str) -> None:
    """torch-tensorrt takes one minor version of torch, and four distributions make up one TensorRT."""
    found = pins(RESOLVED[name])
    assert Version(found["torch"]).release[:2] == Version(found["torch-tensorrt"]).release[:2]
    assert len({version for one, version in found.items() if re.fullmatch(r"tensorrt(-cu13.*)?", one)}) == 1
    assert found["tensorrt"].startswith("11.0." if name == "constraints.txt" else "10.15.")
    assert name == "constraints.txt" or int(found["setuptools"].partition(".")[0]) < 82


def test_a_record_has_the_versions_of_all_compilers_and_quantisers() -> None:
    named = {canonicalize_name(one.name) for one in requirements("cpu", "gpu", "tensorrt", "modelopt")}
    helpers = {canonicalize_name(one.name) for one in requirements()} | {"cuda-toolkit", "huggingface-hub", "requests"}
    assert named - helpers <= set(DISTRIBUTIONS)


def test_sets_differ_only_where_torch_asks_for_it() -> None:
    usual, other = pins(ROOT / "constraints.txt"), pins(ROOT / "constraints-torch-2.11.txt")
    assert {one for one in other if other[one] != usual.get(one)} == DIFFERING
