"""Valid checkpoints load with any wrapper; every bad file is refused in one line and leaves the module unchanged."""

import json
import os
import pickle
import sys
import types
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_files import config_from
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bakeoff.models import resolve_component
from bakeoff.models.checkpoint import adapt_config, keys_of, load_checkpoint
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.tables import FixedTable


@dataclass(frozen=True, slots=True)
class Config:
    width: int = 4
    skip: bool = False


class Small(nn.Module):
    """A decoder with trained weights and a fixed table that is in the state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False))
        self.rope = FixedTable(np.arange(6.0), persistent=True, name="freqs")


def component(**changes: Any) -> Component:
    base = Component(
        name="small",
        summary="a test's own",
        credit="none",
        presets=(),
        default_preset={},
        default_workloads={},
        workload_names=lambda _: (),
        workload=None,
        tolerance_fp32=1e-5,
        network="tests_small_network",
        checkpoint_prefixes=("decoder.", "rope."),
        checkpoint_strip=("ema_model.", "module.", "core."),
    )
    return replace(base, **changes)


def weights(seed: int = 0) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return {name: torch.randn(tensor.shape) for name, tensor in Small().state_dict().items()}


def save(content: Any, path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(content, path, _use_new_zipfile_serialization=not path.name.startswith("legacy"))
    return path


def loaded(path: Path, **changes: Any) -> dict[str, Tensor]:
    module = Small()
    load_checkpoint(path, module, component(**changes))
    return module.state_dict()


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def refusal(path: Path, module: nn.Module | None = None, **changes: Any) -> str:
    """The error message, one line, of a file that must be refused; checks that nothing was copied."""
    module = module or Small()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(BakeoffError) as caught:
        load_checkpoint(path, module, component(**changes))
    assert caught.value.code == "bad-checkpoint"
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 700
    assert path.name.isprintable() is (path.name in message)
    assert same(module.state_dict(), before)
    return message


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.pth", "A.PT", "legacy.pt"])
def test_plain_state_dict_loads(tmp_path: Path, name: str) -> None:
    assert same(loaded(save(weights(), tmp_path / name)), weights())


@pytest.mark.parametrize(
    "content",
    [
        {"ema": weights(), "model": weights(1), "steps": 7},
        {"model": weights(), "opt": {"lr": 0.1}, "scaler": None},
        {"ema": None, "model": weights()},
        {"ema": {**under("ema_model.", weights()), **under("online_model.", weights(1)), "step": torch.tensor(5)}},
        {"ema": under("ema_model.module.", weights())},
        {"model": under("module.", weights())},
        {"model": under("module.core.", weights())},
        under("core.", weights()),
        {"state_dict": weights(), "epoch": 3, "pytorch-lightning_version": "2.5"},
        {"model": under("_orig_mod.", weights())},
        {"model": {"state_dict": under("module._orig_mod.", weights())}},
        {name.replace("decoder.", "decoder._orig_mod."): tensor for name, tensor in weights().items()},
        {**weights(), "encoder.weight": torch.zeros(3), "encoder.note": "text"},
        {name: nn.Parameter(tensor) for name, tensor in weights().items()},
    ],
)
def test_wrappers_are_removed(tmp_path: Path, content: Any) -> None:
    path = save(content, tmp_path / "a.pt")
    assert same(loaded(path), weights())
    assert keys_of(path, component()) == {name: tuple(tensor.shape) for name, tensor in weights().items()}


def test_a_file_without_the_components_keys_is_refused_with_the_beginnings_of_its_own(tmp_path: Path) -> None:
    said = refusal(save(under("net.", weights()), tmp_path / "a.pt"))
    assert "begin with decoder. or rope.; its keys begin with 'net';" in said


def test_without_prefixes_every_key_must_fit(tmp_path: Path) -> None:
    path = save(under("core.", {**weights(), "extra": torch.zeros(1)}), tmp_path / "a.safetensors")
    assert same(loaded(path), weights())
    assert "(extra)" in refusal(path, checkpoint_prefixes=())
    assert "core.decoder.0.bias" in refusal(path, checkpoint_prefixes=(), checkpoint_strip=())


def test_values_take_the_dtype_of_the_module_and_tables_keep_theirs(tmp_path: Path) -> None:
    path = save({name: tensor.double() for name, tensor in weights().items()}, tmp_path / "a.safetensors")
    module = Small().to(torch.bfloat16)
    load_checkpoint(path, module, component())
    found = module.state_dict()
    assert torch.equal(found["decoder.0.weight"], weights()["decoder.0.weight"].to(torch.bfloat16))
    assert torch.equal(found["rope.freqs"], weights()["rope.freqs"])
    assert found["rope.freqs"].dtype == torch.float32


def test_refusal_names_missing_unexpected_and_reshaped_keys(tmp_path: Path) -> None:
    content = weights()
    del content["decoder.0.bias"]
    content["decoder.1.weight"] = torch.zeros(2, 5)
    content |= {f"decoder.{index}.weight": torch.zeros(1) for index in range(5, 10)}
    message = refusal(save(content, tmp_path / "a.safetensors"))
    assert "(decoder.0.bias)" in message
    assert "(decoder.5.weight, decoder.6.weight, decoder.7.weight and 2 more)" in message
    assert all(fact in message for fact in ("decoder.1.weight", "[2, 5]", "[2, 4]"))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, bad: float) -> None:
    content = weights()
    content["decoder.1.weight"][1, 1] = bad
    assert "'decoder.1.weight'" in refusal(save(content, tmp_path / "a.pt"))


def test_values_beyond_the_module_s_dtype_are_refused(tmp_path: Path) -> None:
    path = save({**weights(), "decoder.0.bias": torch.full((4,), 7e4)}, tmp_path / "a.pt")
    assert loaded(path)["decoder.0.bias"][0] == 7e4
    assert "torch.float16" in refusal(path, Small().half())


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ([1.0, 2.0], "a list"),
        (None, "is None;"),
        (torch.zeros(4).to_sparse(), "tensor without plain values"),
        (torch.zeros(4, device="meta"), "tensor without plain values"),
        (torch.zeros(4, dtype=torch.int64), "torch.int64"),
        (torch.zeros(4, dtype=torch.complex64), "torch.complex64"),
        (torch.zeros(4).to(torch.float8_e4m3fn), "torch.float8_e4m3fn"),
        (torch.zeros(1).expand(10**12), "[1000000000000]"),
    ],
)
def test_entries_must_be_plain_floating_point_tensors(tmp_path: Path, entry: Any, expected: str) -> None:
    message = refusal(save({**weights(), "decoder.0.bias": entry}, tmp_path / "a.pt"))
    assert "decoder.0.bias" in message
    assert expected in message


@pytest.mark.parametrize("name", ["a.ckpt", "a.bin", "a.pkl", "a.pt.txt", "a"])
def test_other_extensions_are_refused(tmp_path: Path, name: str) -> None:
    torch.save(weights(), tmp_path / name)
    assert ".safetensors, .pt or .pth" in refusal(tmp_path / name)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_unreadable_files_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    assert "No such file" in refusal(path)
    assert "No such file" in refusal(linked(path, tmp_path / "nowhere"))
    assert "symbolic links" in refusal(linked(path, path))
    assert "not a regular file" in refusal(linked(path, Path("/dev/zero")))
    assert "a folder" in refusal(linked(path, tmp_path))
    path.unlink()
    path.touch()
    assert "empty" in refusal(path)
    assert "Not a directory" in refusal(path / f"a{suffix}")
    assert "null" in refusal(Path(f"nul\0{suffix}"))


def linked(path: Path, target: Path) -> Path:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    return path


class Malicious:
    """Writes a file when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("how", ["protocol 0", "protocol 2", "protocol 4", "protocol 5", "legacy", "zip", "nested"])
def test_malicious_pickle_is_never_executed(tmp_path: Path, how: str) -> None:
    path, marker = tmp_path / "a.pt", tmp_path / "executed"
    attack = {**weights(), "decoder.note": Malicious(marker)}
    if how.startswith("protocol"):
        path.write_bytes(pickle.dumps({"decoder.note": attack["decoder.note"]}, protocol=int(how[-1])))
    elif how == "nested":
        torch.save({"ema": weights(), "opt": attack}, path)
    else:
        torch.save(attack, path, _use_new_zipfile_serialization=how == "zip")
    message = refusal(path)
    assert not marker.exists()
    assert ("not one of torch.save" if how in ("protocol 0", "protocol 4", "protocol 5") else "system") in message
    if not how.startswith("protocol"):
        torch.load(path, weights_only=False)
        assert marker.exists(), "the attack does not work, so the test shows nothing"


def test_compressed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = save(weights(), tmp_path / "a.pt")
    with zipfile.ZipFile(path) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in records.items():
            archive.writestr(name, content + bytes(10**8) if name.endswith("data.pkl") else content)
    assert path.stat().st_size < 10**6
    assert "compressed" in refusal(path)


@pytest.mark.parametrize("size", [2**63, 2**40, 200_000_000, 10_000])
def test_oversized_safetensors_header_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(size.to_bytes(8, "little") + b'{"decoder.0.bias":{}}' + b" " * 1000)
    assert "SafetensorError" in refusal(path)


def test_a_network_module_may_adapt_the_config_to_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = types.ModuleType("tests_small_network")
    monkeypatch.setitem(sys.modules, network.__name__, network)
    path = save({"ema": under("ema_model.", weights())}, tmp_path / "a.pt")
    assert adapt_config(Config(), component(), path) == Config()

    def adapt(config: Config, keys: dict[str, tuple[int, ...]]) -> Config:
        return replace(config, skip="decoder.1.weight" in keys, width=keys["decoder.0.bias"][0] * 2)

    network.adapt_config = adapt
    assert adapt_config(Config(), component(), path) == Config(width=8, skip=True)
    with pytest.raises(BakeoffError) as caught:
        adapt_config(Config(), component(), tmp_path / "missing.pt")
    assert caught.value.code == "bad-checkpoint"


@pytest.mark.parametrize("golden", ["owl_wm_uvit_tiny", "owl_wm_full_tiny"])
def test_world_model_takes_its_backbone_from_the_checkpoint(tmp_path: Path, golden: str) -> None:
    folder = Path(__file__).parents[1] / "golden"
    about = json.loads((folder / f"{golden}.json").read_text())
    tensors = load_file(folder / f"{golden}.safetensors")
    state = {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}
    path = save(under("core.", state), tmp_path / "a.safetensors")
    world = resolve_component("wm")
    right = config_from(type(world.preset("tiny").config), about["config"], "wm")
    wrong = replace(right, backbone="dit" if right.backbone == "uvit" else "uvit")
    assert adapt_config(wrong, world, path) == adapt_config(right, world, path) == right
    module = world.network_module().build(right, "full", 1)
    load_checkpoint(path, module, world)
    assert torch.equal(module.state_dict()["proj_in.weight"], state["proj_in.weight"])
    with pytest.raises(BakeoffError, match="skip_projs") as caught:
        load_checkpoint(path, world.network_module().build(wrong, "full", 1), world)
    assert caught.value.code == "bad-checkpoint"
