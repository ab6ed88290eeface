"""`bakeoff.sweep` from Python: what is handed to the command, and what comes back from it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from records import record
from torch import nn

import bakeoff
from bakeoff import live
from bakeoff.live import Swept
from bakeoff.models.brought.live_read import read_live
from bakeoff.models.brought.model import Model
from bakeoff.models.errors import BakeoffError
from bakeoff.record.store import Stored, save

X = torch.ones(2, 3)

FAKE = """
import json, os, signal, sys, time
arguments = sys.argv[1:]
print("progress", *arguments[:1], file=sys.stderr, flush=True)
{body}
"""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of every command, which is not run."""
    found: list[list[str]] = []

    def run(arguments: list[str]) -> dict[str, Any]:
        found.append(arguments)
        return {"sweep": "s1", "records": [], "finals": []}

    monkeypatch.setattr(live, "run_command", run)
    return found


def fake(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    path = folder / "fake.py"
    path.write_text(FAKE.format(body=body))
    monkeypatch.setattr(live, "COMMAND", (sys.executable, str(path)))


class TestWhatIsSwept:
    def test_a_live_module(self, commands: list[list[str]], tmp_path: Path) -> None:
        module = nn.Linear(3, 2)
        bakeoff.sweep(Model(module, {"input": X}, state={"y": "x"}, keep_fp32=("t",), tolerance_fp32=0.1))
        assert commands[0][:3] == ["sweep", commands[0][1], "--json"]
        folder = Path(commands[0][1])
        assert folder.name == "linear"
        assert folder.parents[1] == tmp_path / "cache" / "live"
        model, calls = read_live(folder)
        assert torch.equal(model.module.weight, module.weight)
        ((args, kwargs),) = calls["call"]
        assert (args, list(kwargs)) == ((), ["input"])
        assert (model.state, model.keep_fp32, model.tolerance_fp32) == ({"y": "x"}, ("t",), 0.1)
        assert [path.name[0] for path in (tmp_path / "cache" / "live").iterdir()] != ["."]

    def test_the_same_content_has_the_same_place(self, commands: list[list[str]]) -> None:
        module = nn.Linear(3, 2)
        bakeoff.sweep(module, X)
        bakeoff.sweep(module, X)
        bakeoff.sweep(module, X + 1)
        first, second, third = (arguments[1] for arguments in commands)
        assert first == second != third

    @pytest.mark.parametrize("inputs", [X, [X], (X,)])
    def test_positional_inputs(self, inputs: Any, commands: list[list[str]]) -> None:
        bakeoff.sweep(nn.Linear(3, 2), inputs, name="mine")
        assert Path(commands[0][1]).name == "mine"
        (((found,), kwargs),) = read_live(Path(commands[0][1]))[1]["call"]
        assert torch.equal(found, X)
        assert kwargs == {}

    def test_a_model_says_more_than_its_inputs(self, commands: list[list[str]]) -> None:
        bakeoff.sweep(Model(nn.Linear(3, 2), sets={"one": X[:1], "two": X}))
        bakeoff.sweep(Model(nn.Linear(3, 2), X, more=[X + 1, X + 2], hold=("input",)), name="mine")
        assert list(read_live(Path(commands[0][1]))[1]) == ["one", "two"]
        model, calls = read_live(Path(commands[1][1]))
        assert (Path(commands[1][1]).name, model.hold, len(calls["call"])) == ("mine", ("input",), 3)

    def test_a_reference_is_handed_on(self, commands: list[list[str]]) -> None:
        bakeoff.sweep("mine.py:model")
        bakeoff.sweep(Path("model.pt2"))
        assert [arguments[1] for arguments in commands] == ["mine.py:model", "model.pt2"]

    def test_options_are_those_of_the_command(self, commands: list[list[str]], tmp_path: Path) -> None:
        swept = bakeoff.sweep(
            "model.pt2",
            backends=["eager", "inductor[freezing]"],
            dtype="fp32",
            device="cpu",
            runs=tmp_path / "r",
            options=["--note", "n", "--monitor", "--row-timeout", "9"],
            final=False,
            resume=True,
        )
        from typer.main import get_command

        from bakeoff.cli.common import app
        from bakeoff.cli.sweep import sweep as _  # noqa: F401  # registers the command

        command = get_command(app).commands["sweep"]  # type: ignore[attr-defined]  # a group
        parsed = command.make_context("sweep", commands[0][3:]).params
        assert parsed["backends"] == ["eager", "inductor[freezing]"]
        assert commands[0][:3] == ["--runs", str(tmp_path / "r"), "sweep"]
        assert (parsed["dtype"], parsed["device"]) == (["fp32"], "cpu")
        assert (parsed["note"], parsed["final"], parsed["resume"], parsed["monitor"]) == ("n", False, True, True)
        assert (parsed["row_timeout"], parsed["as_json"]) == (9.0, True)
        assert swept.folder == tmp_path / "r"


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "options", "text"),
        [
            ((nn.Linear(3, 2),), {}, "no inputs are given"),
            ((3, X), {}, "sweep was given an int"),
            ((Model(nn.Linear(3, 2), X), X), {}, "the Model has inputs and a name of its own"),
            (("mine.py:model", X), {}, "mine.py:model has inputs"),
            (("mine.py:model",), {"name": "other"}, "leave them out"),
            ((nn.Linear(3, 2), X), {"name": "../up"}, "cannot be part of a variant's name"),
        ],
    )
    def test_what_does_not_fit(
        self, arguments: Any, options: Any, text: str, commands: list[list[str]], tmp_path: Path
    ) -> None:
        with pytest.raises(BakeoffError) as caught:
            bakeoff.sweep(*arguments, **options)
        assert text in str(caught.value)
        assert commands == []
        assert not list((tmp_path / "cache").glob("live/*"))

    def test_what_cannot_travel(self, commands: list[list[str]], tmp_path: Path) -> None:
        module = nn.Linear(3, 2)
        module.lock = threading.Lock()  # type: ignore[assignment]
        with pytest.raises(BakeoffError, match=r"lock is a _thread\.lock") as caught:
            bakeoff.sweep(module, X)
        assert caught.value.code == "cannot-travel"
        assert commands == []
        assert not list((tmp_path / "cache" / "live").iterdir())

    def test_in_a_worker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BAKEOFF_WORKER_FDS", "3,4")
        with pytest.raises(BakeoffError, match='if __name__ == "__main__"'):
            bakeoff.sweep(nn.Linear(3, 2), X)


class TestTheChild:
    def test_progress_comes_through_and_json_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake(monkeypatch, tmp_path, 'print(json.dumps({"sweep": "s", "arguments": arguments}))')
        assert live.run_command(["sweep", "x"]) == {"sweep": "s", "arguments": ["sweep", "x"]}
        assert capsys.readouterr() == ("", "progress sweep\n")

    def test_its_error_is_raised(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        body = "print('bakeoff: no backend [x]; known: [y] [unknown-name]', file=sys.stderr); sys.exit(2)"
        fake(monkeypatch, tmp_path, body)
        with pytest.raises(BakeoffError) as caught:
            live.run_command(["sweep"])
        assert (str(caught.value), caught.value.code) == ("no backend [x]; known: [y]", "unknown-name")

    @pytest.mark.parametrize(
        ("body", "text"),
        [("os.kill(os.getpid(), 9)", "was ended by SIGKILL"), ("sys.exit(7)", "exit code 7"), ("", "exit code 0")],
    )
    def test_an_end_without_a_word(self, body: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake(monkeypatch, tmp_path, body)
        with pytest.raises(BakeoffError, match=text) as caught:
            live.run_command(["sweep"])
        assert caught.value.code == "worker-failed"

    def test_ctrl_c_waits_for_its_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        done = tmp_path / "done"
        body = (
            "try:\n    open('started', 'w').close(); time.sleep(60)\nexcept KeyboardInterrupt:\n"
            f"    time.sleep(0.3); open({str(done)!r}, 'w').close()\nsys.exit(130)"
        )
        monkeypatch.chdir(tmp_path)
        fake(monkeypatch, tmp_path, body)

        def press() -> None:
            while not (tmp_path / "started").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(KeyboardInterrupt, match="resume=True"):
            live.run_command(["sweep"])
        thread.join()
        assert done.exists()


class TestSwept:
    def test_records_table_and_best(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = tmp_path / "runs"
        first = save(runs, record(samples_ms=[1.0, 2.0, 3.0]))
        fake(monkeypatch, tmp_path, f'print(json.dumps({{"sweep": "s", "records": ["{first}"], "finals": []}}))')
        swept = bakeoff.sweep("model.pt2")
        assert [entry.id for entry in swept.stored] == [first]
        assert swept.records[0].variant == record().variant
        assert swept.best is not None
        assert swept.best.variant == record().variant
        assert str(record().variant.backend) in swept.table()
        assert str(swept) == swept.table()

    def test_html_is_escaped(self, tmp_path: Path) -> None:
        swept = Swept("s", tmp_path, (Stored("id", record(status="failed", reason="<script>&\x1b[2J")),))
        assert "<script>" not in swept._repr_html_()
        assert "&lt;script&gt;&amp;" in swept._repr_html_()
        assert "\x1b" not in str(swept)
        assert swept.best is None

    def test_nothing_is_imported_by_asking_for_it(self) -> None:
        code = (
            "import sys, bakeoff; bakeoff.sweep; print([one for one in ('torch', 'vl_convert') if one in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"

    def test_dir_has_the_public_names_before_anything_is_imported(self) -> None:
        code = "import bakeoff; print(*(name for name in dir(bakeoff) if name[0] != '_')); import bakeoff.profile; "
        code += "print(*{'profile', '__version__', '__doc__'} - {*dir(bakeoff)})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "Model Pipeline apply sweep\n\n"
