"""TensorRT for RTX's compiler: what stands for a driver, how a compilation fails, and real engines with the plugin."""

import ast
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="models are ONNX models")

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.compilers import c_compiler
from bakeoff.backends.tensorrt_rtx import compiler
from bakeoff.backends.tensorrt_rtx.compiler import ABOUT, compile_model, driverless_environment

NEEDS_C = pytest.mark.skipif(c_compiler() is None, reason="the driver's stand-ins need a C compiler")


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "has_driver", lambda: False)


def python(code: str, environment: Any = (), *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return subprocess.run(command, env={**os.environ, **dict(environment)}, capture_output=True, text=True, check=False)


SEEN = """
import json, os, sys
own = sys.argv[1]
with open(f"{own}/written", "w") as file:
    file.write("kept")
seen = {name: sorted(os.listdir(name)) for name in ("/sys/class/net", own)}
seen |= {name: open(name).read() for name in ("/proc/version", f"{own}/written")}
seen |= {name: os.readlink(name) for name in ("/proc/self/cwd", f"{own}/link")}
seen["mode"] = oct(os.stat(f"{own}/written").st_mode)
for name in ("/sys/class/drm-other", "/sys/class/drmx/card0", "/sys/class"):
    try:
        seen[name] = [each for each in os.listdir(name) if each != "drm"]
    except OSError as error:
        seen[name] = type(error).__name__
card = "/sys/class/drm/card0/device"
if "DRIVERLESS_DRM" in os.environ:
    pci = {name: open(f"{card}/{name}").read() for name in ("vendor", "class")}
    print(json.dumps([os.listdir("/sys/class/drm"), pci, os.path.basename(os.readlink(card)), seen]))
else:
    print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return dict(driverless_environment(tmp_path_factory.mktemp("shared")))


@NEEDS_C
class TestStandIns:
    def test_a_card_is_shown_and_every_other_path_is_as_before(self, made: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("anywhere")
        shown, bare = python(SEEN, made, str(tmp_path)), python(SEEN, {}, str(tmp_path))
        assert shown.returncode == bare.returncode == 0, shown.stderr + bare.stderr
        cards, pci, address, others = json.loads(shown.stdout)
        assert cards == ["card0"]
        assert {name: value.strip() for name, value in pci.items()} == {"vendor": "0x10de", "class": "0x030000"}
        assert address == "0000:01:00.0"
        assert others == json.loads(bare.stdout)

    @pytest.mark.parametrize(
        ("library", "function"),
        [
            ("libcuda.so.1", "cuInit"),
            ("libcuda.so.1", "cuLaunchKernel"),
            ("libcudart.so.13", "cudaMalloc"),
            ("libcudart.so.13", "cudaSetDevice"),
            ("libnvidia-ml.so.1", "nvmlInit_v2"),
        ],
    )
    def test_what_needs_a_driver_ends_the_process_and_is_named(
        self, library: str, function: str, made: dict[str, str]
    ) -> None:
        ended = python(f"import ctypes; ctypes.CDLL('{library}').{function}(); print('went on')", made)
        assert (ended.returncode, ended.stdout) == (compiler._REFUSED, "")
        assert f"{function} was called" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1

    def test_this_process_has_none_of_it(self, tmp_path: Path) -> None:
        def seen() -> tuple[object, ...]:
            folder = Path("/sys/class/drm")
            try:
                ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                driver = str(error)
            else:
                driver = ""
            return dict(os.environ), folder.exists() and sorted(os.listdir(folder)), driver

        before = seen()
        found = driverless_environment(tmp_path)
        assert set(found) == {"LD_PRELOAD", "DRIVERLESS_DRM"}
        assert seen() == before

    def test_they_are_compiled_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = driverless_environment(tmp_path)
        monkeypatch.setattr(compiler, "_make_stand_ins", None)
        assert driverless_environment(tmp_path) == first


def test_the_compiler_s_program_imports_neither_torch_nor_this_lab() -> None:
    """It is started for each build, and its peak of memory is told as the compiler's."""
    tree = ast.parse((Path(compiler.__file__).with_name("compile_engine.py")).read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in named if name.split(".")[0] in ("torch", "bakeoff")]
    assert {"onnx", "onnxruntime"} <= named


class TestChild:
    """Of `compile_model`: the program that it starts is a script of the test."""

    @pytest.fixture
    def compiles(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
        def with_program(code: str) -> Any:
            (tmp_path / "compile_engine.py").write_text(code)
            monkeypatch.setattr(compiler, "_HERE", tmp_path)
            return compile_model(Path("model.onnx"), tmp_path / "made" / "folder", "sm89", tmp_path / "shared")

        monkeypatch.setattr(compiler, "driverless_environment", lambda shared: {"GIVEN": str(shared)})
        return with_program

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ('print(\'{"error": "no such operator"}\')', ("failed", "no such operator")),
            ("import sys; sys.exit('cuInit was called')", ("failed", "cuInit was called")),
            ("import os; os.write(2, b'cuInit was called'); os._exit(86)", ("asked for a driver", "cuInit was called")),
            ("import os; os.kill(os.getpid(), 11)", ("failed", "-11")),
            ("import os; os.write(2, b'x\\nterminate called\\n'); os.abort()", ("failed", "terminate called")),
            ("print('{\"engines\": 1}', flush=True); import os; os.abort()", ("failed", "-6")),
            ("print('garbage')", ("failed", "no result")),
            ("print('[1]')", ("failed", "no result")),
            ("print('{\"other\": 1}')", ("failed", "no result")),
            ("", ("failed", "no result")),
        ],
        ids=["error", "exit", "refused", "signal", "abort", "late abort", "garbage", "list", "other", "nothing"],
    )
    def test_its_failure_is_told(self, code: str, says: tuple[str, ...], compiles: Callable[[str], Any]) -> None:
        with pytest.raises(RuntimeError) as failed:
            compiles(code)
        assert [part for part in ("sm89", *says) if part not in str(failed.value)] == [], str(failed.value)

    def test_a_graph_of_which_it_takes_nothing_is_unsupported_by_its_operators(
        self, compiles: Callable[[str], Any], tmp_path: Path
    ) -> None:
        said = {"engines": 0, "outside": {"Det": 2, "Relu": 1}}
        with pytest.raises(Unsupported, match="with 2 Det, 1 Relu;"):
            compiles(f"print({json.dumps(said)!r})")
        assert not (tmp_path / "made" / "folder" / ABOUT).exists()

    def test_an_operator_that_the_parser_does_not_know_is_named_alone(self, compiles: Callable[[str], Any]) -> None:
        """As ONNX Runtime 1.31.1 printed it, with its colours."""
        line = '[2026-11-28 02:14:51   ERROR] ModelImporter.cpp:140: While parsing node number 2 [Det -> "d"]:\x1b[m'
        said = {"engines": 0, "outside": {"Det": 2, "Relu": 1}}
        with pytest.raises(Unsupported, match="with Det;"):
            compiles(f"import sys; print({line!r}, {line!r}, sep='\\n', file=sys.stderr); print({json.dumps(said)!r})")

    def test_beside_a_driver_it_gets_no_stand_in(
        self, compiles: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("LD_PRELOAD", raising=False)
        monkeypatch.setattr(compiler, "has_driver", lambda: True)
        monkeypatch.setattr(compiler, "driverless_environment", lambda _shared: {"LD_PRELOAD": ""})
        found = compiles(
            "import json, os\nnames = ('GIVEN', 'LD_PRELOAD', 'DRIVERLESS_DRM')\n"
            "print(json.dumps({'engines': 1, 'given': [os.environ[name] for name in names if name in os.environ]}))"
        )
        assert found["given"] == []
