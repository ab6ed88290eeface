"""`python -m tests.golden`: the golden files of all components pass, a wrong output fails, and bad files are named."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_files import GOLDEN
from safetensors.torch import load_file, save_file

main = runpy.run_path(str(GOLDEN / "__main__.py"))["main"]
FILES = sorted(GOLDEN.glob("*.safetensors"))


def copy(folder: Path, name: str, about: Any = None) -> Path:
    """The audio decoder's golden file under another name, with what `about` changes beside it."""
    source = GOLDEN / "owl_audio_decoder_tiny"
    path = folder / f"{name}.safetensors"
    path.write_bytes(source.with_suffix(".safetensors").read_bytes())
    stated = json.loads(source.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(stated | (about or {})))
    return path


def test_every_output_of_every_golden_file_passes() -> None:
    assert len(FILES) == 8
    command = [sys.executable, "-m", "tests.golden", *map(str, FILES)]
    done = subprocess.run(command, cwd=GOLDEN.parents[1], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    out = done.stdout.splitlines()
    counts = [sum(key.startswith("outputs.") for key in load_file(file)) for file in FILES]
    for file, count in zip(FILES, counts, strict=True):
        assert f"{file.name}: {count} of {count} outputs pass" in out
    assert len([line for line in out if line.endswith("  pass")]) == sum(counts)


def test_wrong_outputs_fail_and_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ("off", "nan", "shape", "unknown", "tolerance")
    paths = [copy(tmp_path, name) for name in changes[:-1]]
    right = load_file(paths[0])
    audio = {name: right["outputs.audio"].clone() for name in ("off", "nan")}
    audio["off"][0, 0, 0] += 1e-3
    audio["nan"][0, 0, 0] = torch.nan
    audio["shape"] = right["outputs.audio"][..., 1:].contiguous()
    for path in paths:
        changed = {"outputs.audio": audio[path.stem]} if path.stem in audio else {"outputs.video": torch.zeros(1)}
        save_file(right | changed | {"outputs.aux.other": torch.zeros(1)}, path)
    paths.append(copy(tmp_path, "tolerance", {"suggested_tolerance_fp32": {"atol": 1e-9, "rtol": 0.0}}))
    assert main(paths) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    out = printed.out.splitlines()
    failed = [line.split()[0] for line in out if line.endswith("|b|  FAIL")]
    assert failed[:4] == ["audio", "audio", "audio", "video"]
    verdicts = dict(line.split(": ") for line in out if ": " in line)
    assert [verdicts[path.name].rpartition("pass, ")[2] for path in paths] == ["1 FAIL"] * 4 + [
        f"{len(failed) - 4} FAIL"
    ]
    assert len(failed) > 4, "a file's own tolerance decides"
    assert len([line for line in out if line.startswith("aux.other ") and "not returned" in line]) == 4


def test_a_file_of_which_nothing_can_be_compared_fails(tmp_path: Path) -> None:
    path = copy(tmp_path, "other")
    tensors = {name: tensor for name, tensor in load_file(path).items() if not name.startswith("outputs.")}
    save_file(tensors | {"outputs.aux.other": torch.zeros(1)}, path)
    assert main([path]) == 1
