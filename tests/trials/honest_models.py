"""Whether small honest models of many kinds are left in peace, and whether their artifacts compute what they do.

    python tests/trials/honest_models.py [--only lstm sort] [--backends eager,aoti]

Sweeps each factory of tests/support/honest.py with `bakeoff sweep FILE:NAME --no-final` over the CPU backends of the
default suite, exports each compiled row that can be exported, and compares the artifact, in a fresh process and without
a reference of bakeoff's, with the factory's module called on the factory's inputs. Prints a line for each row that can
run here; one that says anything but ok must be true of the compiler. Exits 1 if a row is accused and not among
`TRUE_OF_THE_COMPILER`, has an alarm, or has no artifact although its backend makes some, and if an artifact differs. It
takes some minutes a model. Run it alone on the machine: `unstable` is no accusation, but says that other processes ran.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from false_alarms import ALARMS

from bakeoff.backends import resolve_backend
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all

MODELS = Path(__file__).resolve().parents[1] / "support" / "honest.py"
NAMES = (
    "tiny", "complex_numbers", "fft", "lstm", "scatter", "sort", "mixed_precision", "uint8", "channels_last", "tied",
    "empty_cache", "scan", "infinities",
)  # fmt: skip
LIMITS = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 3e-2, "given": 3e-2}
"""Relative L2 that an artifact may be off the user's own call, by the row's dtype."""
MEASURED = ("ok", "unstable")
LEFT_OUT = ("unavailable", "unsupported", "build_failed")
"""What a compiler says of itself."""
TRUE_OF_THE_COMPILER: dict[tuple[str, str], str] = {}
"""Model and backend to the reason why it is not ok, each confirmed by hand in plain torch and the engine alone."""


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    record: Record
    error: float | None
    """Of the artifact against the user's own call; None where there is none."""
    why_not: str

    @property
    def problem(self) -> str:
        """Why the trial fails, or an empty string."""
        status, backend = self.record.status, self.record.variant.backend
        alarms = sorted({finding.code for finding in self.record.measurement.findings} & ALARMS)
        if status not in MEASURED:
            known = (self.model, backend) in TRUE_OF_THE_COMPILER or (status in LEFT_OUT and backend != "eager")
            return "" if known else status
        if alarms:
            return f"alarms: {' '.join(alarms)}"
        if self.why_not:
            return f"not exported: {self.why_not}"
        if self.error is not None and not self.error <= LIMITS[self.record.variant.dtype]:
            return "the artifact computes something else"
        return ""


def bakeoff(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BAKEOFF_CACHE": str(cache)}
    command = [sys.executable, "-m", "bakeoff", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def rows(name: str, backends: str, folder: Path) -> Iterator[Row]:
    runs, cache, what = folder / name, folder / "cache", f"{MODELS}:{name}"
    chosen = ["--backends", backends] if backends else []
    done = bakeoff("--runs", str(runs), "sweep", what, "--device", "cpu", "--no-final", *chosen, cache=cache)
    found = [stored.record for stored in load_all(runs).current]
    if not found:
        raise SystemExit(f"{name}: no record\n{done.stderr}")
    for record in found:
        backend = record.variant.backend
        if record.status not in MEASURED or resolve_backend(record.variant.backends[-1].name).artifact is None:
            yield Row(name, record, None, "")
            continue
        to = folder / "artifacts" / name / backend / record.variant.dtype
        made = bakeoff(
            "--runs", str(runs), "export", what, "--backend", backend, "--dtype", record.variant.dtype,
            "--device", "cpu", "--to", str(to), cache=cache,
        )  # fmt: skip
        if made.returncode:
            yield Row(name, record, None, made.stderr.strip().splitlines()[-1])
            continue
        ours = [sys.executable, __file__, "--compare", name, str(to)]
        compared = subprocess.run(ours, capture_output=True, text=True, check=False)
        if compared.returncode:
            yield Row(name, record, None, compared.stderr.strip().splitlines()[-1])
        else:
            yield Row(name, record, float(compared.stdout.splitlines()[-1]), "")


def compare(name: str, folder: str) -> float:
    """Largest relative L2 error of the artifact's outputs against the user's own call; inf where infinities differ."""
    import honest
    import torch

    from bakeoff.export import load
    from bakeoff.export.torch_flags import differing_flags

    torch.manual_seed(0)
    module, inputs = getattr(honest, name)()
    with torch.no_grad():
        wanted = module(**inputs)
    expected = list(wanted.values()) if isinstance(wanted, dict) else [wanted]
    engine = load(folder)
    ports = engine.manifest.programs[0].inputs
    given = {port.name: inputs[port.name].to(getattr(torch, port.dtype)) for port in ports}
    assert not differing_flags(engine.program(engine.manifest.main).flags)
    got = list(engine(**given).values())
    errors = []
    for ours, theirs in zip(got, expected, strict=True):
        if ours.shape != theirs.shape:
            raise SystemExit(f"shape {tuple(ours.shape)}, not {tuple(theirs.shape)}")
        finite, ours, theirs = theirs.isfinite(), ours.double(), theirs.double()
        if not torch.equal(ours[~finite], theirs[~finite]):
            return float("inf")
        errors.append(float((ours[finite] - theirs[finite]).norm() / theirs[finite].norm().clamp(min=1e-30)))
    return max(errors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=NAMES)
    parser.add_argument("--backends", default="", help="default: those of the default suite")
    parser.add_argument("--compare", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compare:
        print(compare(*asked.compare))
        return 0
    count, problems = 0, []
    with tempfile.TemporaryDirectory(prefix="bakeoff-honest-models-") as folder:
        for name in asked.only or NAMES:
            for row in rows(name, asked.backends, Path(folder)):
                if row.record.status == "unavailable":
                    continue
                variant, said = row.record.variant, row.record.measurement.reason or row.why_not
                artifact = "" if row.error is None else f"{row.error:.1e}"
                print(
                    f"{name:16}  {variant.backend:20}  {variant.dtype:5}  {row.record.status:13}  {artifact:8}  {said}",
                    flush=True,
                )
                count += 1
                problems += [f"{name} {variant.backend} {variant.dtype}: {row.problem}"] if row.problem else []
    for problem in problems:
        print(f"WRONG: {problem}")
    print(f"{count} rows of honest models, {len(problems)} wrong")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
