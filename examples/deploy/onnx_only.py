"""Runs an ONNX artifact with ONNX Runtime only, without torch and bakeoff.

    python onnx_only.py ARTIFACT

Checks every file's hash, runs the opening of the stream and the frames of the sample, carries state between the calls
as the manifest defines, and prints error and latency: that of the first call, which is cold, and the median of 20 calls
once warm. Needs onnxruntime, numpy and safetensors.
"""

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from safetensors.numpy import load_file

Arrays = dict[str, np.ndarray]
WARM_UP, CALLS = 3, 20
"""Calls of each program before and within its median."""


def checked_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest. Raises SystemExit if a file differs from the exported one."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    for name, about in manifest["files"].items():
        if Path(name).name != name or (folder / name).is_symlink():
            sys.exit(f"{name} is not a plain file of the artifact; copy the folder again")
        with (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != about["sha256"]:
                sys.exit(f"{name} differs from the exported file; copy the folder again")
    named = [manifest["sample"]["file"], *(program["file"] for program in manifest["programs"])]
    if not set(named) <= manifest["files"].keys():
        sys.exit("the manifest opens a file for which it has no hash; export the artifact again")
    return manifest


def carry(state: dict[str, Arrays], carries: Iterable[dict[str, Any]], program: str, outputs: Arrays) -> None:
    """Update the state with a call's outputs: each replaces an input, or is appended to an input that is a window."""
    for one in carries:
        if one["workload"] != program:
            continue
        new = outputs[one["output"]]
        if one["axis"] is not None:
            window = state[one["to"]][one["input"]]
            _, kept = np.split(window, [new.shape[one["axis"]]], one["axis"])
            new = np.concatenate((kept, new), one["axis"])
        state[one["to"]][one["input"]] = new


def median_ms(session: onnxruntime.InferenceSession, inputs: Arrays) -> float:
    """The median of a warm session's calls."""
    times_ms = []
    for _ in range(WARM_UP + CALLS):
        started = time.perf_counter()
        session.run(None, inputs)
        times_ms.append((time.perf_counter() - started) * 1000)
    return statistics.median(times_ms[WARM_UP:])


def main(folder: Path) -> None:
    manifest = checked_manifest(folder)
    programs = {program["name"]: program for program in manifest["programs"]}
    stream = manifest["stream"] or {"each": [manifest["main"]], "carries": []}
    first_calls = [*stream.get("opening", []), *stream["each"]]  # of frame 0; later frames call those of `each` only
    sample, every = load_file(folder / manifest["sample"]["file"]), manifest["sample"]["every"]
    sessions = {name: onnxruntime.InferenceSession(folder / programs[name]["file"]) for name in first_calls}
    state: dict[str, Arrays] = {name: {} for name in programs}
    first_ms: dict[str, float] = {}
    inputs: dict[str, Arrays] = {}
    worst, over = 0.0, []
    for frame in range(manifest["sample"]["frames"]):
        for name in stream["each"] if frame else first_calls:
            for port in programs[name]["inputs"]:  # frame 0 of the sample has all of them, in place of carried state
                given = sample.get(f"{frame}/{name}/in/{port['name']}")
                if given is not None:
                    state[name][port["name"]] = np.resize(given, port["shape"])
            inputs[name] = dict(state[name])
            started = time.perf_counter()
            found = sessions[name].run(None, inputs[name])
            first_ms.setdefault(name, (time.perf_counter() - started) * 1000)
            outputs = {port["name"]: array for port, array in zip(programs[name]["outputs"], found, strict=True)}
            for port, array in outputs.items():
                reference = sample[f"{frame}/{name}/out/{port}"].ravel()
                output = array.ravel()[:: every.get(f"{name}/{port}", 1)]
                error = float(np.linalg.norm(output - reference) / np.linalg.norm(reference))
                worst = error if not error <= worst else worst  # NaN stays
                if not error <= manifest["sample"]["limits"][f"{name}/{port}"]:
                    over.append(f"frame {frame} {name}/{port}")
            carry(state, stream["carries"], name, outputs)
    for name, first in first_ms.items():
        warm = median_ms(sessions[name], inputs[name])
        print(f"{name:12} first call {first:.2f} ms, median of {CALLS} warm calls {warm:.2f} ms")
    print(f"{manifest['sample']['frames']} frames, largest relative error of an output {worst:.2e}")
    assert "torch" not in sys.modules
    if over:
        sys.exit(f"over the limit: {', '.join(over)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
