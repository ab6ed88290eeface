"""Bad input and a bad environment: one error line with its code, an exit code, no lost record and no partial file.

Most cases run the command line in this process, those of streams and disks start it. The assertions are on the error's
code, which is printed in brackets at the end of the line, and on the value that is wrong (a name, a number, a file).
"""

import json
import os
import pickle
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import shorten_clocks
from records import UNSUPPORTED, Ran, bakeoff, record, started_bakeoff

from bakeoff.machine import paths
from bakeoff.models import component_names
from bakeoff.models.errors import ErrorCode
from bakeoff.record.store import save
from bakeoff.report.pages import files, history

LINE_LIMIT = 720
"""Characters of an error line: cli.common prints at most 700 of a message."""
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

    def run(self, *arguments: str | bytes, **environment: str | None) -> Ran:
        return bakeoff(*arguments, cwd=self.folder, **environment)

    def start(self, *arguments: str, prefix: Sequence[str] = (), **environment: str | None) -> Ran:
        return started_bakeoff(*arguments, cwd=self.folder, prefix=prefix, **environment)

    def describe(self) -> None:
        """Have the cache know the model, so that a sweep that is started needs no worker."""
        assert self.run("--runs", "elsewhere", *UNSUPPORTED[:-1], "fp32,bf16").code == 3

    def kept(self) -> dict[str, bytes]:
        """Everything under runs/, hidden files too."""
        return {str(path.relative_to(self.runs)): path.read_bytes() for path in self.runs.rglob("*") if path.is_file()}

    def refuses(
        self,
        *arguments: str | bytes,
        code: ErrorCode,
        says: Sequence[str] = (),
        exit: int = 2,
        alone: bool = True,
        **environment: str | None,
    ) -> None:
        """The command must end with exit code `exit` and one error line that ends with `[code]` and holds all of
        `says`; with `alone`, nothing else may be on stderr. Nothing under runs/ may change."""
        before = self.kept()
        ran = self.run(*arguments, **environment)
        check(ran, code, says, exit, alone)
        assert self.kept() == before
        assert not list(self.folder.rglob("*.tmp"))


def check(ran: Ran, code: ErrorCode, says: Sequence[str] = (), exit: int = 2, alone: bool = True) -> None:
    """One error line as `Lab.refuses` wants it, and no traceback."""
    assert "Traceback" not in ran.err, ran.err
    assert len(ran.said) == 1, ran.err
    assert ran.err.splitlines()[-1] == ran.said[0]
    assert not alone or ran.err.splitlines() == ran.said
    assert ran.code == exit
    assert len(ran.said[0]) <= LINE_LIMIT
    assert ran.said[0].endswith(f" [{code}]"), ran.said[0]
    for part in says:
        assert part in ran.said[0], f"{part!r} is not in {ran.said[0]!r}"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    save(folder / "runs", record("eager", [1.0] * 20))
    files.update(folder / "runs")
    for name, text in OWN_CODE.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def lab(filled: Path, tmp_path: Path) -> Lab:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return Lab(tmp_path)


NAMES: list[tuple[str, str | bytes, ErrorCode, list[str]]] = [
    ("unknown", "nosuch", "unknown-name", ["'nosuch'", *component_names()]),
    ("path", "../../etc", "unknown-name", ["'../../etc'"]),
    ("path-after-colon", "wm:../x", "unknown-name", ["'wm:../x'"]),
    ("relative-module", "..x:SPEC", "unknown-name", ["'..x:SPEC'"]),
    ("no-module", ":SPEC", "unknown-name", ["':SPEC'"]),
    ("shell", "$(touch marker); `touch marker`", "unknown-name", ["'$(touch marker)"]),
    ("control-characters", "to\x01y\x1b[31m\nnext", "unknown-name", ["'to y [31m next'"]),
    ("very-long", "x" * 50_000, "unknown-name", ["'xxx", *component_names()]),
    ("not-utf-8", b"to\xffy", "bad-option", ["'to\\udcffy'"]),
    ("pipeline", "owl", "unknown-name", ["owl is a pipeline", "bakeoff pipeline owl --mix eager --dry-run"]),
    ("missing-module", "no_such_module:SPEC", "bad-user-code", ["'no_such_module:SPEC'"]),
    ("missing-attribute", "wrong_kind:NOPE", "bad-user-code", ["'wrong_kind:NOPE'", "'NOPE'"]),
    ("not-a-component", "wrong_kind:SPEC", "bad-user-code", ["'wrong_kind:SPEC'", "int"]),
    ("syntax-error", "broken_syntax:SPEC", "bad-user-code", ["SyntaxError", "broken_syntax.py, line 1"]),
    ("raises", "raises_at_import:SPEC", "bad-user-code", ["RuntimeError", "boom in two lines"]),
    ("exits", "exits_at_import:SPEC", "bad-user-code", ["SystemExit"]),
    ("imports-missing", "imports_nothing_known:SPEC", "bad-user-code", ["'nothing_of_that_name'"]),
]


@pytest.mark.parametrize(("name", "code", "says"), [pytest.param(*case[1:], id=case[0]) for case in NAMES])
def test_component(lab: Lab, name: str | bytes, code: ErrorCode, says: list[str]) -> None:
    lab.refuses("list", name, code=code, says=says)
    assert not (lab.folder / "marker").exists()


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("nosuch", "unknown-name", "'nosuch'"),
        ("", "unknown-name", "''"),
        ("own:NO_PRESET", "bad-option", "--preset"),
        ("own:NO_WORKLOAD", "bad-option", "--workload"),
        ("own:NO_NETWORK", "bad-user-code", "'no_such.network'"),
    ],
)
def test_component_of_a_sweep(lab: Lab, name: str, code: ErrorCode, says: str) -> None:
    lab.refuses("sweep", name, "--device", "cpu", "--dry-run", code=code, says=[says])


OPTIONS: list[tuple[str, list[str | bytes], ErrorCode, list[str]]] = [
    ("preset", ["--preset", "huge"], "unknown-name", ["'huge'", "tiny, small"]),
    ("preset-empty", ["--preset", ""], "bad-option", ["--preset"]),
    ("preset-list-with-an-empty-entry", ["--preset", "tiny,,small"], "bad-option", ["--preset"]),
    ("workload", ["--workload", "dance"], "unknown-name", ["'dance'", "world, picture, sound, stream"]),
    ("backend", ["--backends", "gcc"], "unknown-name", ["'gcc'", "eager"]),
    ("backend-module-raises", ["--backends", "raises_at_import:B"], "bad-user-code", ["'raises_at_import:B'", "boom"]),
    ("two-backends-of-one-name", ["--backends", "eager,own:ALSO_EAGER"], "not-composable", ["eager"]),
    ("bracket", ["--backends", "inductor[freezing"], "bad-option", ["'inductor[freezing'"]),
    ("option", ["--backends", "inductor[speed=9]"], "bad-option", ["'speed'", "freezing"]),
    ("option-value", ["--backends", "inductor[mode=fast]"], "bad-option", ["inductor[mode=fast]", "reduce-overhead"]),
    ("dtype", ["--dtype", "fp8"], "unknown-name", ["'fp8'", "bf16"]),
    ("device", ["--device", "tpu"], "unknown-name", ["'tpu'", "cuda"]),
    ("suite", ["--suite", "huge"], "unknown-name", ["'huge'", "quick", "full"]),
    ("batch", ["--batch", "0"], "bad-option", ["--batch 0"]),
    ("threads", ["--threads", "-1"], "bad-option", ["--threads -1"]),
    ("checkpoint-empty", ["--checkpoint", ""], "bad-option", ["--checkpoint"]),
    ("checkpoint-missing", ["--checkpoint", "no.pt"], "bad-checkpoint", ["--checkpoint no.pt"]),
    ("checkpoint-device", ["--checkpoint", "/dev/full"], "bad-checkpoint", ["--checkpoint /dev/full"]),
    ("note", ["--note", b"\xff"], "bad-option", ["'\\udcff'"]),
    ("long-note", ["--note", "x" * 501], "bad-option", ["--note", "501"]),
    ("row-timeout", ["--row-timeout", "0"], "bad-option", ["--row-timeout 0", "1 to 86400"]),
    ("time-limit", ["--time-limit", "0"], "bad-option", ["--time-limit 0", "more than 0"]),
    ("time-limit-of-no-time", ["--time-limit", "-3m"], "bad-option", ["--time-limit '-3m'", "90s, 3m or 1h30m"]),
    ("time-limit-empty", ["--time-limit", ""], "bad-option", ["--time-limit"]),
    ("never-runs", ["--backends", "eager+eager"], "not-composable", ["eager"]),
    ("resume-of-nothing", ["--resume", "--dry-run"], "nothing-to-resume", ["--resume"]),
    ("resume", ["--resume"], "nothing-to-resume", ["--resume"]),
]


@pytest.mark.parametrize(("options", "code", "says"), [pytest.param(*case[1:], id=case[0]) for case in OPTIONS])
def test_sweep_option(lab: Lab, options: list[str | bytes], code: ErrorCode, says: list[str]) -> None:
    lab.refuses("sweep", "toy", *options, code=code, says=says)


@pytest.mark.parametrize(
    ("typed", "now"),
    [
        ("sweep toy --budget 3m", "--time-limit"),
        ("sweep toy --builds 3", "a sweep after bakeoff doctor --cache clear"),
        ("sweep toy --deadline=60", "--row-timeout"),
        ("gate toy --against runs --deadline 60", "--row-timeout"),
        ("gate toy --against runs --option steps=3", "part of the name, as in owl[steps=10]"),
        ("sweep toy --runs elsewhere", "an option before the command: bakeoff --runs FOLDER table"),
        ("records merge elsewhere --runs=here", "an option before the command: bakeoff --runs FOLDER table"),
        ("session show FILE --wide", "what any pipe gets: bakeoff table | less -S"),
        ("sweep toy --input-seed 3", "--seed, of weights and inputs"),
        ("pipeline owl --preset tiny", "part of the name, as in owl:tiny, wm:1b.step or mine.py:Loop:large"),
        ("profile owl --minutes 3", "an option of pipeline and deadline alone"),
        ("profile owl --top 50", "always 20"),
        ("doctor --cache --clear", "--cache clear"),
        ("publish --supersede RECORD --reason WHY", "the second word of --supersede RECORD WHY"),
        ("verify FOLDER --seconds 9", "always 30 minutes to verify, an hour to inspect, 10 s of calls to compare"),
        ("compare A B --seconds=4", "always 30 minutes to verify"),
        ("export wm --workload step", "part of the name, as in wm:1b.step"),
        ("ceilings", "bakeoff doctor --ceilings"),
        ("cache --clear", "bakeoff doctor --cache show"),
        ("supersede RECORD", "bakeoff publish --supersede RECORD WHY"),
    ],
)
def test_a_former_name_is_refused_with_the_one_of_today(lab: Lab, typed: str, now: str) -> None:
    lab.refuses(*typed.split(), code="bad-option", says=[f"is now{':' * now.startswith('bakeoff')} {now}"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "'frobnicate'"),
        (["sweep"], "'components'"),
        (["sweep", "toy", "--frobnicate"], "--frobnicate"),
        (["sweep", "toy", "--seed", "many"], "'--seed'"),
        (["doctor", "x"], "(x)"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_usage(lab: Lab, arguments: list[str], says: str) -> None:
    """What the argument parser (typer) refuses itself: its own message, without a code, and exit code 2."""
    before = lab.kept()
    ran = lab.run(*arguments)
    assert ran.code == 2
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) <= 4
    assert ran.out == ""
    assert lab.kept() == before


# Weights. Only a worker reads the file, and its error reaches the command line with its code.


class _Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def _foreign(path: Path, **_: Any) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"some.other.net": torch.zeros(100)}, path)


def _malicious_pickle(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps({"world.weight": _Runs(marker)}, protocol=2))


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [("foreign.safetensors", _foreign, "toy"), ("evil.pt", _malicious_pickle, "posix.mkdir")],
    ids=["foreign", "evil"],
)
def test_checkpoint(lab: Lab, name: str, write: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/models/test_checkpoint.py has every kind of file."""
    marker = lab.folder / "executed"
    write(lab.folder / name, marker=marker)
    before = lab.kept()
    shorten_clocks(monkeypatch)
    ran = lab.run("sweep", "toy", "--backends", "eager", "--device", "cpu", "--checkpoint", str(lab.folder / name))
    check(ran, "bad-checkpoint", [name, says], alone=False)
    assert lab.kept() == before
    assert not marker.exists()


# Folders that cannot be written, and disks that are full.


@pytest.mark.parametrize(
    ("runs", "code", "says"),
    [
        ("", "bad-option", "--runs"),
        ("own.py", "not-readable", "own.py"),
        ("own.py/below", "not-readable", "own.py/below"),
        ("/proc/nowhere", "not-writable", "/proc/nowhere"),
        ("x" * 300, "not-readable", "xxx"),
    ],
    ids=["empty", "a file", "below a file", "read-only", "long"],
)
def test_runs_folder(lab: Lab, runs: str, code: ErrorCode, says: str) -> None:
    lab.refuses("--runs", runs, *UNSUPPORTED, code=code, says=[says])


@pytest.mark.parametrize("cache", ["own.py", "/proc/nowhere"])
def test_cache_folder(lab: Lab, cache: str) -> None:
    lab.refuses(*UNSUPPORTED, code="not-writable", says=[cache], BAKEOFF_CACHE=cache)


def test_full_output(lab: Lab) -> None:
    """A page that is cut off in the middle must not look like success."""
    command = ("sh", "-c", '"$@" > /dev/full', "sh")
    check(lab.start("list", prefix=command), "os-error", ["No space left on device"])


def test_closed_output(lab: Lab) -> None:
    ran = lab.start("list", "toy", prefix=("sh", "-c", '"$@" >&-', "sh"))
    assert (ran.code, ran.out, ran.err) == (0, "", "")


@pytest.mark.parametrize("arguments", [["list"], ["doctor"], ["show", "nosuch"]])
def test_a_reader_that_has_read_enough(lab: Lab, arguments: list[str]) -> None:
    """As `head -1`; under pipefail the command's own exit code is the pipe's."""
    ran = lab.start(*arguments, prefix=("bash", "-c", 'set -o pipefail; "$@" | true', "bash"))
    assert (ran.code, ran.out) == (2 if "nosuch" in arguments else 0, "")
    assert ("nosuch" in ran.err) is ("nosuch" in arguments)


def test_deleted_working_folder(lab: Lab) -> None:
    ran = lab.start("table", prefix=("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh"))
    assert (ran.code, ran.err) == (0, "")


def test_record_that_does_not_fit_and_resume(lab: Lab) -> None:
    """The sweep ends with what did not fit; `--resume` refuses another plan and finishes this one."""
    lab.describe()
    before = lab.kept()
    ran = lab.start(*UNSUPPORTED, prefix=(sys.executable, "-c", SMALL_FILES_ONLY))
    check(ran, "not-writable", ["File too large"], alone=False)
    assert lab.kept() == before
    assert not list(lab.folder.rglob("*.tmp"))

    another = [*UNSUPPORTED[:-1], "bf16", "--resume"]
    lab.refuses(*another, code="nothing-to-resume")

    resumed = lab.run(*UNSUPPORTED, "--resume")
    assert resumed.code == 3
    assert resumed.said == []
    assert len([name for name in lab.kept() if name not in before and name.endswith(".json")]) == 1
    lab.refuses(*UNSUPPORTED, "--resume", code="nothing-to-resume")


# Records that cannot be read.


def _keep(lab: Lab, name: str, content: bytes) -> None:
    (_folder(lab) / f"{name}.json").write_bytes(content)


def _only(lab: Lab) -> Path:
    (path,) = lab.runs.glob("*/records/*.json")
    return path


def _folder(lab: Lab) -> Path:
    """The folder of the records of the machine that `record` names."""
    return lab.runs / record().machine.folder / "records"


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ("zzz", "no-record", ["'zzz'"]),
        ("", "no-record", ["''"]),
        ("2026", "no-record", ["'2026'", "2 of 2"]),
        ("../../etc/passwd", "no-record", ["'../../etc/passwd'"]),
        ("x" * 5000 + ".json", "no-record", ["'xxx"]),
        ("own.json", "bad-record", ["own.json"]),
    ],
    ids=["unknown", "empty", "ambiguous", "path", "long", "foreign file"],
)
def test_show(lab: Lab, asked: str, code: ErrorCode, says: list[str]) -> None:
    save(lab.runs, record("inductor", [1.0] * 20))
    (lab.folder / "own.json").write_text("{}")
    lab.refuses("show", asked, code=code, says=says)


def test_history_and_sweeps_go_on_beside_an_unreadable_record(lab: Lab) -> None:
    page = (lab.runs / history.NAME).read_bytes()
    _keep(lab, "bad", b"{")
    ran = lab.run("history")
    assert (ran.code, len(ran.said)) == (0, 1)
    assert "bad.json" in ran.said[0]
    assert (lab.runs / history.NAME).read_bytes() == page
    ran = lab.run(*UNSUPPORTED, "--json")
    assert (ran.code, len(ran.said)) == (3, 1)
    assert "bad.json" in ran.said[0]
    assert len(json.loads(ran.out)["records"]) == 1
    assert (_folder(lab) / "bad.json").read_bytes() == b"{"


SUPERSEDE = ("publish", "--supersede")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([*SUPERSEDE, "zzz", "bad"], "no-record", "'zzz'"),
        ([*SUPERSEDE, "2026", " "], "bad-option", "only with a reason"),
        ([*SUPERSEDE, "2026", "x" * 501], "bad-option", "501"),
        (["--runs", "elsewhere", *SUPERSEDE, "2026", "bad"], "no-record", "elsewhere"),
        ([*SUPERSEDE, "elsewhere.json", "bad"], "no-record", "--runs"),
    ],
    ids=["unknown", "no reason", "long reason", "another folder", "not in the folder"],
)
def test_supersede(lab: Lab, arguments: list[str], code: ErrorCode, says: str) -> None:
    name = save(lab.folder / "other", record("inductor", [1.0] * 20))
    (elsewhere,) = (lab.folder / "other").glob(f"*/records/{name}.json")
    typed = [str(elsewhere) if text == "elsewhere.json" else text for text in arguments]
    lab.refuses(*typed, code=code, says=[says])


def test_a_record_is_superseded_once(lab: Lab) -> None:
    name = _only(lab).stem
    _keep(lab, "bad", b"{")
    assert lab.run("publish", "--supersede", name, "busy").code == 0
    lab.refuses("publish", "--supersede", name, "again", code="no-record", says=[name, "already (busy)"])


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["table", "nosuch"], "unknown-name", ["'nosuch'", *component_names()]),
        (["report", "--html", "x.html", "nosuch"], "unknown-name", ["'nosuch'", *component_names()]),
        (["table", "audio"], "no-record", ["of audio ", "sweep MODEL=audio"]),
        (["--runs", "elsewhere", "table"], "no-record", ["elsewhere"]),
        (["table", "--machine", "nosuch"], "unknown-name", ["'nosuch'", record().machine.folder]),
        (["table", "--machine", ""], "bad-option", ["--machine"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) and value[0] in ("table", "report") else "",
)
def test_what_there_are_no_records_of(lab: Lab, command: list[str], code: ErrorCode, says: list[str]) -> None:
    lab.refuses(*command, code=code, says=says)


@pytest.mark.parametrize(
    "command",
    [
        ["table"], ["table", "unet"], ["table", "nosuch"], ["report", "--html", "x.html", "unet"], ["show", "abc"],
        ["show", "unet"], ["explain", "abc", "abd"], ["compare", "--undecided"],
        ["history"], ["history", "--check"], ["publish"], ["publish", "--supersede", "abc", "bad"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_folder_of_records_that_does_not_exist(lab: Lab, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "published_runs", lambda: lab.folder / "published")
    says = ["folder of records elsewhere does not exist", "--runs", "bakeoff sweep"]
    lab.refuses("--runs", "elsewhere", *command, code="no-record", says=says)


def test_a_missing_library_of_bakeoff_itself(lab: Lab) -> None:
    """As after pip install --no-deps."""
    for name in ("typer", "rich"):
        (lab.folder / f"lacking-{name}").mkdir()
        (lab.folder / f"lacking-{name}" / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('gone', name={name!r})\n"
        )
        check(lab.start("table", PYTHONPATH=f"lacking-{name}"), "missing-library", [f"'{name}'"])
