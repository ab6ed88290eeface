"""Exported programs carry torch's flags that they were verified under, and a call under others warns once."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch", reason="the flags are torch's")

import torch
from artifacts import copy, exported, manifest_of, rewrite
from toys import LIBRARY_WARNINGS

from bakeoff.export import Artifact, FlagsWarning, load
from bakeoff.export.manifest import MANIFEST, encode, unseal
from bakeoff.export.torch_flags import differing_flags, verified_flags
from bakeoff.worker.torch_flags import flags, settings

pytestmark = LIBRARY_WARNINGS


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flags")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        return exported("toy:tiny.world/torch.export/fp32@cpu", folder / "artifact", folder / "runs").folder


@pytest.fixture
def short_products() -> Iterator[None]:
    """What a deployment may have set for other models in its process."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def call(opened: Artifact) -> None:
    ports = opened.manifest.program("world").inputs
    opened(**{port.name: torch.zeros(port.shape) for port in ports})


def test_the_manifest_has_the_flags_of_its_device_and_dtype(artifact: Path) -> None:
    assert manifest_of(artifact).flags == {"float32_matmul_precision": "highest"}


@pytest.mark.usefixtures("short_products")
def test_the_first_call_under_other_flags_warns_and_says_what_to_set(artifact: Path) -> None:
    opened = load(artifact)
    with pytest.warns(FlagsWarning, match=re.escape("torch.set_float32_matmul_precision('highest')")):
        call(opened)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FlagsWarning)
        call(opened)


def test_a_call_under_its_flags_does_not_warn(artifact: Path) -> None:
    with flags("fp32", 1), warnings.catch_warnings():
        warnings.simplefilter("error", FlagsWarning)
        call(load(artifact))


@pytest.mark.usefixtures("short_products")
def test_a_manifest_from_before_flags_were_stored_is_read_and_does_not_warn(artifact: Path, tmp_path: Path) -> None:
    older = copy(artifact, tmp_path / "older")
    rewrite(older, flags=msgspec.UNSET)
    data = (older / MANIFEST).read_bytes()
    assert b'"flags"' not in data
    assert encode(unseal(data)) == data
    with warnings.catch_warnings():
        warnings.simplefilter("error", FlagsWarning)
        call(load(older))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16", "fp16"])
def test_flags_of_a_manifest_are_those_that_programs_are_verified_under(dtype: str, device: str) -> None:
    with flags(dtype, 1):
        wanted = verified_flags(device, dtype)
        assert wanted.items() <= settings().items()
        assert differing_flags(wanted) == []


def test_fp32_on_cuda_is_not_what_torch_does_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process has TF32 on in cuDNN's convolutions."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert differing_flags(verified_flags("cuda", "fp32")) == ["torch.backends.cudnn.allow_tf32 = False"]
    assert differing_flags({"a flag of a later version": 1}) == []
