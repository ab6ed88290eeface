"""What somebody sees who waits: on terminals of several widths, in files and in logs."""

import io
import re
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
from records import record
from rich.console import Console

from bakeoff.cli.progress import TerminalProgress
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Row
from bakeoff.process.supervisor import Event
from bakeoff.record.schema import Record

BACKENDS = ("eager", "inductor", "inductor[freezing]", "inductor[mode=reduce-overhead]")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = "[red]evil[/red] \x1b[2J\x07 [link=http://x]text[/link]\r\n[9/9] eager fp32  ok\u202e"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Stands for time.monotonic."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def rows_of(**asked: object) -> tuple[Row, ...]:
    request = Request("toy", presets=("tiny",), workloads=("world",), backends=BACKENDS, dtypes=("fp32",), device="cpu")
    return make_plan(replace(request, **asked)).rows  # type: ignore[arg-type]


ROWS = rows_of()
EAGER, INDUCTOR, FREEZING, GRAPHS = ROWS


def ended(row: Row, samples_ms: tuple[float, ...] = (), status: str = "ok", reason: str = "", place: int = 1) -> Record:
    made = record("eager", samples_ms, status, reason)
    return replace(
        made, variant=row.variant, baseline=row.baseline, batch=row.subject.batch, position=place, process=row.process
    )


SOME = (
    ended(EAGER, (9.9, 10.0, 10.1) * 4, place=1),
    ended(FREEZING, (4.9, 5.0, 5.1) * 4, place=3),
    ended(GRAPHS, (), "unsupported", "CUDA graphs need CUDA", place=4),
)


def lines_of(console: Console, progress: TerminalProgress) -> list[str]:
    """What is drawn, without colours."""
    with console.capture() as capture:
        console.print(progress)
    return [line.rstrip() for line in ESCAPES.sub("", capture.get()).split("\n")[:-1]]


def drawn(width: int, *records: Record, height: int = 24, rows: tuple[Row, ...] = ROWS) -> list[str]:
    """The screen with two workers that run beside each other."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
    progress = TerminalProgress(rows, console)
    first, second = progress.start(2, 4, rows[1].label), progress.start(3, 4, rows[2].label)
    first.event(Event("build"))
    second.event(Event("warm-up", "call 3"))
    for each in records:
        progress.result(each)
    progress.expect(240.0)
    return lines_of(console, progress)


@pytest.mark.usefixtures("clock")
class TestDrawn:
    @pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
    def test_no_line_is_wider_than_the_terminal(self, width: int) -> None:
        assert max(map(len, drawn(width, *SOME))) <= width


def test_each_worker_shows_how_long_its_phase_lasts(clock: Clock) -> None:
    console = Console(file=io.StringIO(), width=100, height=24, force_terminal=True)
    progress = TerminalProgress(ROWS, console)
    first, second = progress.start(1, 4, EAGER.label), progress.start(2, 4, INDUCTOR.label)
    clock.now += 70
    second.event(Event("latency"))
    progress.expect(300.0)
    clock.now += 30
    second.event(Event("throughput", "40 samples one by one, 8 of blocks"))  # the two clocks take turns
    first.event(Event("rounds", "2 of 9"))
    clock.now += 40
    first.event(Event("rounds", "3 of 9"))
    assert lines_of(console, progress) == [
        "  40 s  [1/3] eager fp32  rounds: 3 of 9",
        "  70 s  [2/3] inductor fp32  timing calls: 40 samples one by one, 8 of blocks",
        "2 min so far, about 4 min left",
    ]
    second.finish()
    clock.now += 225
    assert lines_of(console, progress)[1:] == ["6 min so far, almost done"]
    clock.now += 20
    assert lines_of(console, progress)[1:] == ["6 min so far, longer than estimated"]
    progress.expect(20.0, 130.0)
    assert lines_of(console, progress)[1:] == ["6 min so far, 2 min until the time is up"]
    progress.expect(20.0, -3.0)
    assert lines_of(console, progress)[1:] == ["6 min so far, the time is up"]
    progress.expect(None)
    assert lines_of(console, progress)[1:] == ["6 min so far"], "time that does not count"
    progress.expect(None)
    assert lines_of(console, progress)[1:] == ["6 min so far"]
    first.finish()
    assert lines_of(console, progress) == ["6 min so far"]


def whole(console: Console, error: Exception | None = None) -> None:
    """A sweep of four rows, two of which run beside each other, and a final."""
    with TerminalProgress(ROWS, console) as progress:
        progress.say("This host is busy.")
        both = progress.start(1, 4, EAGER.label), progress.start(3, 4, FREEZING.label)
        for running, made in zip(both, SOME[:2], strict=True):
            for phase in ("import", "build", "latency", "throughput", "latency"):
                running.event(Event(phase))
            running.finish()
            progress.expect(240.0)
            progress.result(made)
        progress.start(4, 4, GRAPHS.label).finish()
        progress.result(SOME[2])
        progress.start(2, 4, INDUCTOR.label).finish()
        progress.result(ended(INDUCTOR, (), "crashed", HOSTILE, 2))
        if error is not None:
            raise error
        final = progress.start(0, 0, "final: inductor[freezing] fp32 against eager fp32")
        final.event(Event("rounds", "1 of 9"))
        final.finish("ok", "9 rounds\ninterleaved")


@pytest.mark.usefixtures("clock")
class TestLines:
    def expected(self) -> list[str]:
        reason = "[red]evil[/red] [2J [link=http://x]text[/link] [9/9] eager fp32 ok"
        return [
            "This host is busy.",
            "[1/3] eager fp32: started",
            "[1/3] eager fp32  ok  10.00 ms [9.90, 10.10]  (about 4 min left)",
            "[2/3] inductor[freezing] fp32: started",
            "[2/3] inductor[freezing] fp32  ok  5.000 ms [4.900, 5.100]  2.00x eager fp32  "
            "(fastest so far; about 4 min left)",
            f"[3/3] inductor fp32  crashed  {reason}  (about 4 min left)",
            "final: inductor[freezing] fp32 against eager fp32: started",
            "final: inductor[freezing] fp32 against eager fp32  ok  9 rounds interleaved",
            "1 row cannot run here (1 unsupported); the records say why.",
            "",
        ]

    @pytest.mark.parametrize("width", [60, 100, 200])
    def test_of_a_file(self, width: int) -> None:
        file = io.StringIO()
        whole(Console(file=file, width=width))
        assert file.getvalue().split("\n") == self.expected(), "whatever the width"

    @pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
    def test_of_a_log_that_wants_colours(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(variable, "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        file = io.StringIO()
        whole(Console(file=file, width=100))
        assert "\r" not in file.getvalue()
        assert {code[-1] for code in ESCAPES.findall(file.getvalue())} == {"m"}, "colours and nothing else"
        assert ESCAPES.sub("", file.getvalue()).split("\n") == self.expected()


def test_a_long_silence_ends_with_the_next_phase(clock: Clock) -> None:
    file = io.StringIO()
    with TerminalProgress(ROWS, Console(file=file, width=80)) as progress:
        running = progress.start(1, 4, EAGER.label)
        for phase, lasts_s in (("import", 20), ("build", 65), ("prove", 1), ("check", 0)):
            running.event(Event(phase))
            clock.now += lasts_s
    assert file.getvalue().splitlines() == [
        "[1/3] eager fp32: started",
        "[1/3] eager fp32: collecting backend statistics (85 s since it started)",
    ]


def test_processes_of_a_variant_are_told_apart() -> None:
    rows = rows_of(backends=("eager",), processes=2)
    file = io.StringIO()
    with TerminalProgress(rows, Console(file=file, width=80)) as progress:
        for place, row in enumerate(rows, 1):
            progress.start(place, 2, row.label).finish()
            progress.result(ended(row, (10.0 + place,) * 5, place=place))
    assert file.getvalue().splitlines() == [
        "[1/2] eager fp32, process 1 of 2  ok  11.00 ms [11.00, 11.00]",
        "[2/2] eager fp32, process 2 of 2  ok  12.00 ms [12.00, 12.00]  0.92x eager fp32",
    ]


class TestTerminal:
    @pytest.fixture
    def console(self, monkeypatch: pytest.MonkeyPatch) -> Console:
        monkeypatch.setenv("TERM", "xterm-256color")
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        return Console(file=Terminal(), width=100, height=24)

    def text(self, console: Console) -> str:
        assert isinstance(console.file, Terminal)
        return console.file.getvalue()

    @pytest.mark.parametrize("error", [None, ValueError("broken")])
    def test_what_ran_is_taken_off_the_screen_and_the_lines_of_rows_stay(
        self, console: Console, error: Exception | None
    ) -> None:
        with pytest.raises(ValueError, match="broken") if error else nullcontext():
            whole(console, error)
        kept = screen(self.text(console))
        assert kept[0] == "This host is busy."
        assert [line.split("  ")[0] for line in kept[1:4]] == [
            "[1/3] eager fp32", "[2/3] inductor[freezing] fp32", "[3/3] inductor fp32",
        ]  # fmt: skip
        assert kept[-1] == "1 row cannot run here (1 unsupported); the records say why."
        assert not [line for line in kept if "so far," in line]


def screen(written: str) -> list[str]:
    """What stays on a terminal of so many characters: carriage returns, cursor up and erased lines are obeyed."""
    lines, at = [""], 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", written):
        if part == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            at -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part and part != "\r" and not part.startswith("\x1b"):
            lines[at] += part
    return [line.rstrip() for line in lines if line.strip()]
