"""What the user or the system got wrong is one sentence and an exit code; no record is lost, nothing is half-written.

Every case goes through the real command line in a process of its own.
"""

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from records import SETTLED, Ran, bakeoff, record

from bakeoff.machine import host
from bakeoff.models import component_names
from bakeoff.record.store import save
from bakeoff.report.markdown import history

GOLDEN = Path(__file__).parents[2] / "golden"
SENTENCE_LIMIT = 720
OWN_CODE = {
    "broken_syntax.py": "def (\n",
    "raises_at_import.py": "raise RuntimeError('boom\\nin two lines')\n",
    "exits_at_import.py": "import sys\nsys.exit(0)\n",
    "imports_nothing_known.py": "import nothing_of_that_name\n",
    "wrong_kind.py": "SPEC = 3\n",
    "own.py": """\
from dataclasses import replace
from bakeoff.backends.eager import BACKEND as EAGER
from bakeoff.models.toy.spec import SPEC as TOY
NO_PRESET = replace(TOY, default_preset={})
NO_WORKLOAD = replace(TOY, default_workloads={})
NO_NETWORK = replace(TOY, network="no_such.network")
ALSO_EAGER = replace(EAGER, summary="another of the same name")
""",
}


SMALL_FILES_ONLY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # Python ignores SIGXFSZ: a longer write fails with EFBIG
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Lab:
    """A working folder with a record, its history and a user's own modules."""

    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def run(self, *arguments: str | bytes, prefix: Sequence[str] = (), **environment: str | None) -> Ran:
        return bakeoff(*arguments, cwd=self.folder, prefix=prefix, **environment)

    def kept(self) -> dict[str, bytes]:
        """Everything under runs/, hidden files too."""
        return {str(path.relative_to(self.runs)): path.read_bytes() for path in self.runs.rglob("*") if path.is_file()}

    def refuses(
        self, *arguments: str | bytes, says: Sequence[str], code: int = 2, alone: bool = True, **environment: str | None
    ) -> None:
        """The command must fail with one sentence that holds all of `says`; `alone` with nothing else on stderr."""
        before = self.kept()
        ran = self.run(*arguments, prefix=(), **environment)
        check(ran, says, code, alone)
        assert self.kept() == before
        assert not list(self.folder.rglob("*.tmp"))


def check(ran: Ran, says: Sequence[str], code: int = 2, alone: bool = True) -> None:
    assert "Traceback" not in ran.err, ran.err
    assert len(ran.said) == 1, ran.err
    assert ran.err.splitlines()[-1] == ran.said[0]
    assert not alone or ran.err.splitlines() == ran.said
    assert ran.code == code
    assert len(ran.said[0]) <= SENTENCE_LIMIT
    for part in says:
        assert part in ran.said[0], f"{part!r} is not in {ran.said[0]!r}"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    save(tmp_path / "runs", record("eager", [1.0] * 20))
    history.update(tmp_path / "runs")
    for name, text in OWN_CODE.items():
        (tmp_path / name).write_text(text)
    return Lab(tmp_path)


NAMES = [
    ("unknown", "nosuch", ["no component 'nosuch'", "known: wm, image, audio, matrix-vae, toy", "package.module:SPEC"]),
    ("path", "../../etc", ["no component '../../etc'"]),
    ("path-after-colon", "wm:../x", ["no component 'wm:../x'"]),
    ("relative-module", "..x:SPEC", ["no component '..x:SPEC'"]),
    ("no-module", ":SPEC", ["no component ':SPEC'"]),
    ("shell", "$(touch marker); `touch marker`", ["no component '$(touch marker)"]),
    ("control-characters", "to\x01y\x1b[31m\nnext", ["no component 'to y [31m next'"]),
    ("very-long", "x" * 50_000, ["no component 'xxx", "known: wm, image"]),
    ("not-utf-8", b"to\xffy", ["'to\\udcffy' is not UTF-8"]),
    ("missing-module", "no_such_module:SPEC", ["'no_such_module:SPEC' cannot be loaded", "No module named"]),
    ("missing-attribute", "wrong_kind:NOPE", ["cannot be loaded", "has no attribute 'NOPE'"]),
    ("not-a-component", "wrong_kind:SPEC", ["'wrong_kind:SPEC' is of type int, not", "Component"]),
    ("syntax-error", "broken_syntax:SPEC", ["cannot be loaded: SyntaxError", "broken_syntax.py, line 1"]),
    ("raises", "raises_at_import:SPEC", ["cannot be loaded: RuntimeError: boom in two lines"]),
    ("exits", "exits_at_import:SPEC", ["cannot be loaded: SystemExit: 0"]),
    ("imports-missing", "imports_nothing_known:SPEC", ["cannot be loaded: No module named 'nothing_of_that_name'"]),
]


@pytest.mark.parametrize(("name", "says"), [pytest.param(*case[1:], id=case[0]) for case in NAMES])
def test_component(lab: Lab, name: str | bytes, says: list[str]) -> None:
    lab.refuses("list", name, says=says)
    assert not (lab.folder / "marker").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nosuch", "no component 'nosuch'; known: "),
        ("", "no component ''; known: "),
        ("own:NO_PRESET", "toy states no default for cpu; give --preset"),
        ("own:NO_WORKLOAD", "toy states no default for cpu; give --workload"),
        ("own:NO_NETWORK", "its network module 'no_such.network' cannot be found"),
    ],
)
def test_component_of_a_sweep(lab: Lab, name: str, says: str) -> None:
    lab.refuses("sweep", name, "--device", "cpu", "--dry-run", says=[says])


OPTIONS = [
    ("preset", ["--preset", "huge"], ["toy has no preset 'huge'; it has tiny, small"]),
    ("preset-of-nothing", ["--preset", ""], ["--preset names nothing"]),
    ("preset-list-with-a-hole", ["--preset", "tiny,,small"], ["--preset names nothing"]),
    ("workload", ["--workload", "dance"], ["toy has no workload 'dance'; it has world, picture, sound, stream"]),
    ("backend", ["--backends", "gcc"], ["no backend 'gcc'; known: eager, cudagraph,", "package.module:BACKEND"]),
    ("backend-module-raises", ["--backends", "raises_at_import:B"], ["'raises_at_import:B' cannot be loaded", "boom"]),
    ("two-backends-of-one-name", ["--backends", "eager,own:ALSO_EAGER"], ["two different backends are called eager"]),
    ("bracket", ["--backends", "inductor[freezing"], ["'inductor[freezing': the options' bracket is not closed"]),
    ("option", ["--backends", "inductor[speed=9]"], ["'speed'", "mode, freezing"]),
    ("option-value", ["--backends", "inductor[mode=fast]"], ["inductor[mode=fast]: takes default, reduce-overhead"]),
    ("dtype", ["--dtype", "fp8"], ["no dtype 'fp8'; known: fp32, tf32, bf16, fp16"]),
    ("device", ["--device", "tpu"], ["no device 'tpu'; known: cpu, cuda"]),
    ("suite", ["--suite", "huge"], ["no suite 'huge'; known: default, full"]),
    ("batch", ["--batch", "0"], ["--batch 0: a batch is at least 1"]),
    ("threads", ["--threads", "-1"], ["--threads -1: give 0 for all cores, or 1 to 1024"]),
    ("checkpoint-of-nothing", ["--checkpoint", ""], ["--checkpoint names nothing"]),
    ("checkpoint-missing", ["--checkpoint", "no.pt"], ["--checkpoint no.pt: No such file or directory; give"]),
    ("checkpoint-device", ["--checkpoint", "/dev/full"], ["--checkpoint /dev/full: not a file"]),
    ("note", ["--note", b"\xff"], ["'\\udcff' is not UTF-8"]),
    ("resume", ["--resume"], ["--resume: no unfinished sweep of toy writes to", "run without --resume"]),
]


@pytest.mark.parametrize(("options", "says"), [pytest.param(*case[1:], id=case[0]) for case in OPTIONS])
def test_sweep_option(lab: Lab, options: list[str | bytes], says: list[str]) -> None:
    lab.refuses("sweep", "toy", *options, says=says)


@pytest.mark.skipif(bool(host.read_host().gpus), reason="this host has a GPU")
def test_cuda_without_a_gpu(lab: Lab) -> None:
    lab.refuses("sweep", "toy", "--device", "cuda", says=["--device cuda: no NVIDIA GPU", "use --device cpu"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["sweep"], "Missing argument 'component'"),
        (["sweep", "toy", "--frobnicate"], "No such option: --frobnicate"),
        (["sweep", "toy", "--batch", "many"], "Invalid value for '--batch'"),
        (["supersede", "x"], "Missing option '--reason'"),
        (["doctor", "x"], "unexpected extra argument"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_usage(lab: Lab, arguments: list[str], says: str) -> None:
    before = lab.kept()
    ran = lab.run(*arguments)
    assert ran.code == 2
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) <= 4
    assert ran.out == ""
    assert lab.kept() == before


# Weights: what a file holds, only a worker finds out.


class _Runs:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def _truncated(path: Path, **_: Any) -> None:
    whole = path.with_name("whole.safetensors")
    _foreign(whole)
    path.write_bytes(whole.read_bytes()[:-20])


def _foreign(path: Path, **_: Any) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"some.other.net": torch.zeros(100)}, path)


def _wrong_shapes(path: Path, **_: Any) -> None:
    from safetensors.torch import save_file

    from bakeoff.models import resolve_component

    toy = resolve_component("toy")
    module = toy.network_module().build(toy.preset("small").config, "world")
    save_file(module.state_dict(), path)


def _malicious_pickle(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps({"world.weight": _Runs(marker)}))


def _malicious_archive(path: Path, marker: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"world.weight": _Runs(marker)}, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")


def _empty(path: Path, **_: Any) -> None:
    path.touch()


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [
        ("truncated.safetensors", _truncated, "truncated"),
        ("foreign.safetensors", _foreign, "keys do not fit toy: "),
        ("small.safetensors", _wrong_shapes, "of another shape (world.weight is [256, 64], not [128, 32]"),
        ("evil-pickle.pt", _malicious_pickle, "damaged"),
        ("evil-archive.pt", _malicious_archive, "posix.mkdir"),
        ("weights.bin", _empty, "'.bin' is not accepted; convert it to .safetensors, .pt or .pth"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and " " not in value else "",
)
def test_checkpoint(lab: Lab, name: str, write: Any, says: str) -> None:
    marker = lab.folder / "executed"
    write(lab.folder / name, marker=marker)
    arguments = ("sweep", "toy", "--backends", "eager", "--device", "cpu", "--checkpoint", name)
    lab.refuses(*arguments, says=[f"{name} cannot be loaded: ", says], alone=False)
    assert not marker.exists()


# Places that cannot be written, and disks that are full.


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ("", ["--runs names nothing"]),
        ("own.py", ["records cannot be read from own.py/records: Not a directory; choose another folder"]),
        ("own.py/below", ["records cannot be read from own.py/below/records: Not a directory"]),
        ("/proc/nowhere", ["records cannot be written to /proc/nowhere/records: ", "choose another folder"]),
        ("x" * 300, ["File name too long"]),
    ],
    ids=["nothing", "a file", "below a file", "read-only", "long"],
)
def test_runs_folder(lab: Lab, runs: str, says: list[str]) -> None:
    lab.refuses(*SETTLED, "--runs", runs, says=says)


@pytest.mark.parametrize("cache", ["own.py", "/proc/nowhere"])
def test_cache_folder(lab: Lab, cache: str) -> None:
    lab.refuses(*SETTLED, says=["caches cannot be written to ", cache, "choose another folder"], BAKEOFF_CACHE=cache)


def test_full_output(lab: Lab) -> None:
    """A page that is cut off in the middle must not look like success."""
    command = ("sh", "-c", '"$@" > /dev/full', "sh")
    check(lab.run("list", prefix=command), ["output: No space left on device"])


def test_closed_output(lab: Lab) -> None:
    ran = lab.run("list", "toy", prefix=("sh", "-c", '"$@" >&-', "sh"))
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_no_home_folder(lab: Lab) -> None:
    """A user without HOME and without an entry in passwd, as containers have them."""
    as_nobody = ("unshare", "--user", "--map-user=12345")
    if not shutil.which("unshare") or subprocess.run([*as_nobody, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host allows no user namespaces")
    ran = lab.run("doctor", prefix=as_nobody, HOME=None, BAKEOFF_CACHE=None)
    check(ran, ["this user has no home folder; set HOME or BAKEOFF_CACHE"])
    assert lab.run("doctor", prefix=as_nobody, HOME=None).code == 0


def test_deleted_working_folder(lab: Lab) -> None:
    ran = lab.run("table", prefix=("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh"))
    assert (ran.code, ran.err) == (0, "")


def test_record_that_does_not_fit_and_resume(lab: Lab) -> None:
    """The sweep ends with what did not fit; `--resume` refuses another plan and finishes this one."""
    before = lab.kept()
    ran = lab.run(*SETTLED, prefix=(sys.executable, "-c", SMALL_FILES_ONLY))
    check(ran, ["cannot be written to", "File too large", "make room"], alone=False)
    assert lab.kept() == before
    assert not list(lab.folder.rglob("*.tmp"))

    another = [*SETTLED[:-1], "bf16", "--resume"]
    lab.refuses(*another, says=["--resume: the unfinished sweep had another plan", "run without --resume"])

    resumed = lab.run(*SETTLED, "--resume")
    assert resumed.code == 3
    assert resumed.said == []
    made = [name for name in lab.kept() if name not in before and not name.endswith(".svg")]
    assert len(made) == 1
    assert made[0].endswith(".json")
    lab.refuses(*SETTLED, "--resume", says=["--resume: no unfinished sweep"])


def test_full_disk(lab: Lab) -> None:
    """A tmpfs of one page: the first record takes it, the second finds none left; with room, `--resume` ends it."""
    script = """
        mount -t tmpfs -o size=4k full "$1" && shift || exit 77
        "$@" --json; echo "first ends with $?"
        ls -A full full/records
        mount -o remount,size=1m full "$PWD/full" && "$@" --resume --json; echo "second ends with $?"
        ls -A full full/records
    """
    (lab.folder / "full").mkdir()
    if not shutil.which("unshare"):
        pytest.skip("this host has no unshare")
    prefix = ("unshare", "-rm", "sh", "-c", script, "sh", str(lab.folder / "full"))
    ran = lab.run(*SETTLED[:-1], "fp32,bf16", "--runs", "full", prefix=prefix)
    if "first ends" not in ran.out:
        pytest.skip(f"no tmpfs can be mounted here: {ran.err.strip()}")
    first, second = ran.out.split("second ends")[0].split("first ends with ")[1], ran.out.split("second ends with ")[1]
    assert ".tmp" not in ran.out
    assert "Traceback" not in ran.err
    assert ran.said == [line for line in ran.said if "No space left on device" in line]
    assert len(ran.said) == 1
    assert first.startswith("2\n")
    assert first.partition('{"sweep"')[0].count(".json") == 1
    assert second.startswith("3\n")
    assert second.count(".json") == 2
    assert "OPTIMIZATION_HISTORY.md" in second


# Records that cannot be read.


def _keep(lab: Lab, name: str, content: bytes) -> None:
    (lab.runs / "records" / f"{name}.json").write_bytes(content)


def _only(lab: Lab) -> Path:
    (path,) = (lab.runs / "records").glob("*.json")
    return path


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("zzz", ["'zzz': none of 2", "bakeoff table"]),
        ("", ["'': none of 2 records matches"]),
        ("2026", ["'2026': 2 of 2"]),
        ("../../etc/passwd", ["none of 2 records matches"]),
        ("x" * 5000 + ".json", ["none of 2 records matches"]),
        ("own.json", ["own.json is not a record: it has no schema"]),
    ],
    ids=["unknown", "empty", "ambiguous", "path", "long", "foreign file"],
)
def test_show(lab: Lab, asked: str, says: list[str]) -> None:
    save(lab.runs, record("inductor", [1.0] * 20))
    (lab.folder / "own.json").write_text("{}")
    lab.refuses("show", asked, says=says)


UNREADABLE = {
    "empty": (b"", "Input data was truncated"),
    "torn": (b'{"schema":1,"created":"2026', "cannot be read"),
    "binary": (b"\xff\xfe\x00", "JSON is malformed"),
    "list": (b"[]", "Expected `object`, got `array`"),
    "foreign": (b'{"a":1}', "is not a record: it has no schema"),
    "incomplete": (b'{"schema":1}', "missing required field"),
    "older": (b'{"schema":0}', "has schema 0"),
    "deep": (b'{"schema":1,"a":' * 50_000, "recursion depth"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_show_of_an_unreadable_record(lab: Lab, name: str) -> None:
    content, says = UNREADABLE[name]
    _keep(lab, name, content)
    lab.refuses("show", name, says=[f"{name}.json", says])


def test_unreadable_records_are_said_and_spare_the_others(lab: Lab) -> None:
    for name, (content, _) in UNREADABLE.items():
        _keep(lab, name, content)
    before = lab.kept()
    lab.refuses("history", "--check", says=["binary.json", "JSON is malformed"], code=1)
    ran = lab.run("table", "--json")
    assert ran.code == 0
    assert len(ran.said) == 4
    assert ran.said[-1] == "bakeoff: 5 more records cannot be read; see: bakeoff history --check"
    found = json.loads(ran.out)
    assert len(found["records"]) == len(found["rows"]) == 1
    for problem, name in zip(found["problems"], sorted(UNREADABLE), strict=True):
        assert f"{name}.json" in problem
        assert UNREADABLE[name][1] in problem
    assert lab.kept() == before


def test_unreadable_record_spares_history_and_sweeps(lab: Lab) -> None:
    page = (lab.runs / history.NAME).read_bytes()
    _keep(lab, "bad", b"{")
    check(lab.run("history"), ["record bad.json cannot be read", "restore it"], code=0)
    assert (lab.runs / history.NAME).read_bytes() == page
    ran = lab.run(*SETTLED, "--json")
    assert ran.said == [
        "bakeoff: record bad.json cannot be read: Input data was truncated; restore it from version control"
    ]
    assert ran.code == 3
    assert len(json.loads(ran.out)["records"]) == 1
    assert lab.kept()["records/bad.json"] == b"{"


def test_edited_record(lab: Lab) -> None:
    """A record's name holds the hash of its content, so that nobody improves a number unseen."""
    path = _only(lab)
    path.write_bytes(path.read_bytes().replace(b"1000000", b"900000"))
    lab.refuses("show", path.stem, says=[path.name, "restore it"])
    lab.refuses("history", "--check", says=[path.name], code=1)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda lab: (lab.runs / history.NAME).write_text("# mine"), "edited by hand or stale; run: make history"),
        (lambda lab: (lab.runs / history.NAME).write_bytes(b"\xff"), "edited by hand or stale; run: make history"),
        (lambda lab: _only(lab).unlink(), "cites 1 records that are missing, first 20260102T030405Z_toy"),
        (lambda lab: save(lab.runs, record("inductor", [1.0] * 20)), "edited by hand or stale; run: make history"),
        (lambda lab: (lab.runs / history.NAME).unlink(), "OPTIMIZATION_HISTORY.md does not exist; run: make history"),
    ],
    ids=["hand edit", "not text", "missing record", "stale", "missing page"],
)
def test_history_check(lab: Lab, spoil: Any, says: str) -> None:
    assert history.check(lab.runs) is None
    spoil(lab)
    lab.refuses("history", "--check", says=[says], code=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["zzz", "--reason", "bad"], ["'zzz': none of 1 records matches"]),
        (["2026", "--reason", " "], ["give --reason"]),
        (
            ["2026", "--reason", "bad", "--runs", "elsewhere"],
            ["'2026': none of 0 records matches in elsewhere/records"],
        ),
        (["elsewhere.json", "--reason", "bad"], ["is not in ", "--runs"]),
    ],
    ids=["unknown", "no reason", "another folder", "not in the folder"],
)
def test_supersede(lab: Lab, arguments: list[str], says: list[str]) -> None:
    name = save(lab.folder / "other", record("inductor", [1.0] * 20))
    elsewhere = lab.folder / "other" / "records" / f"{name}.json"
    lab.refuses("supersede", *(str(elsewhere) if text == "elsewhere.json" else text for text in arguments), says=says)


@pytest.mark.parametrize(
    "command", [["table", "nosuch"], ["table", "--runs", "elsewhere"]], ids=["component", "folder"]
)
def test_table_of_nothing(lab: Lab, command: list[str]) -> None:
    lab.refuses(*command, says=["no records", "bakeoff sweep"])


def test_list_of_an_unknown_component(lab: Lab) -> None:
    lab.refuses("list", "nosuch", says=["no component 'nosuch'; known: " + ", ".join(component_names())])


# Golden files.


def _copy(folder: Path, name: str, about: Any = None) -> Path:
    """The audio decoder's golden file under another name, with what `about` changes beside it."""
    source = GOLDEN / "owl_audio_decoder_tiny"
    path = folder / f"{name}.safetensors"
    path.write_bytes(source.with_suffix(".safetensors").read_bytes())
    stated = json.loads(source.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(stated | (about or {})))
    return path


def test_golden_files_that_cannot_be_replayed(lab: Lab) -> None:
    """All in one command: each problem spares the other files."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = lab.folder
    _copy(folder, "good")
    _copy(folder, "no-json").with_suffix(".json").unlink()
    _copy(folder, "torn-json").with_suffix(".json").write_text("{")
    _copy(folder, "list-json").with_suffix(".json").write_text("[]")
    _copy(folder, "no-component", {"component": "guitar"})
    _copy(folder, "bad-config", {"config": {"channels": "two"}})
    _copy(folder, "no-config", {"config": 7})
    _copy(folder, "bad-tolerance", {"suggested_tolerance_fp32": {"atol": "tight"}})
    truncated = _copy(folder, "truncated")
    truncated.write_bytes(truncated.read_bytes()[:1000])
    _copy(folder, "not-tensors").write_bytes(b"hello")
    tensors = load_file(_copy(folder, "no-outputs"))
    save_file(
        {name: t for name, t in tensors.items() if not name.startswith("outputs.")}, folder / "no-outputs.safetensors"
    )
    _copy(folder, "shape")
    save_file(tensors | {"inputs.z": torch.zeros(1)}, folder / "shape.safetensors")
    says = {
        "missing.safetensors": "missing.safetensors: no such file in",
        "own.py": "own.py: a golden file ends in .safetensors and has a .json beside it",
        "no-json.safetensors": "no-json.json: no such file in",
        "torn-json.safetensors": "torn-json.safetensors cannot be read",
        "list-json.safetensors": "list-json.json has no config",
        "no-component.safetensors": "no component for 'guitar'; known: ",
        "bad-config.safetensors": "bad-config.safetensors: ",
        "no-config.safetensors": "no-config.json has no config",
        "bad-tolerance.safetensors": "suggested_tolerance_fp32 must be an object with numbers",
        "truncated.safetensors": "truncated.safetensors cannot be read",
        "not-tensors.safetensors": "not-tensors.safetensors cannot be read",
        "no-outputs.safetensors": "no-outputs.safetensors has no outputs.* to compare with",
        "shape.safetensors": "shape.safetensors: ",
    }
    before = lab.kept()
    ran = lab.run("golden", "good.safetensors", *says)
    assert "Traceback" not in ran.err
    assert ran.code == 2
    assert len(ran.said) == len(ran.err.splitlines()) == 1
    for text in says.values():
        assert text in ran.out
    assert "good.safetensors: " in ran.out
    assert "outputs pass" in ran.out
    assert lab.kept() == before


def test_golden_file_past_its_tolerance(lab: Lab) -> None:
    from safetensors.torch import load_file, save_file

    path = _copy(lab.folder, "off")
    tensors = load_file(path)
    name = next(name for name in tensors if name.startswith("outputs.") and ".aux." not in name)
    tensors[name][..., 0] += 1
    save_file(tensors, path)
    before = lab.kept()
    ran = lab.run("golden", str(path), "--json")
    check(ran, ["off.safetensors: 1 of ", "outputs FAIL"], code=1)
    (found,) = json.loads(ran.out)["files"]
    assert [output["name"] for output in found["outputs"] if not output["passed"]] == [name.removeprefix("outputs.")]
    assert lab.kept() == before
