"""What make installs, run in a copy of the Makefile with a Python that only writes down its calls."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    "constraints-torch-2.11.txt",
    "tools/install-tensorrt",
    "tools/missing-compilers",
    "backends/compilers.py",
)
NVIDIA_SMI = '#!/bin/sh\necho "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-555555555555)"\n'
# Stands for `python3` and, after `-m venv`, for the environment's own. While the file `unreachable` exists, pip fails
# for the extra `tensorrt` with its content: what pip 23.2 prints for the exception of wheel_stub 0.5.0 (error.py).
PYTHON = """#!/bin/sh
case "$1 $2" in
    "-c "*) exit 0 ;;
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && exit 0 ;;
    "tools/"*) exec {python} "$@" ;;
esac
echo "$*" >> calls
case "$*" in *tensorrt*) test -e unreachable && cat unreachable >&2 && exit 1 ;; esac
exit 0
"""
UNREACHABLE = """\
  error: subprocess-exited-with-error

  × Preparing metadata (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [125 lines of output]
          raise URLError(err)
      urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>

      wheel_stub.error.InstallFailedError:
      *******************************************************************************

      The installation of tensorrt-cu13-libs for version 11.0.0.114 failed.

      This is a special placeholder package which downloads a real wheel package
error: metadata-generation-failed
"""
EVERYTHING_ELSE = "-m pip install --disable-pip-version-check -c constraints.txt -e .[gpu]"
TENSORRT = "-m pip install --disable-pip-version-check -c constraints.txt -e .[gpu,tensorrt,modelopt]"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with a Makefile, on a host with an NVIDIA GPU or without."""

    folder: Path
    path: str

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": self.path, "HOME": str(self.folder)}
        host = (f"PYTHON={self.folder}/python", f"SYSTEM={self.folder}/system")
        command = ["make", "--no-print-directory", *host, *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def installs(self, *arguments: str) -> Sequence[str]:
        """The pip commands that a successful `make` runs."""
        (self.folder / "calls").unlink(missing_ok=True)
        done = self.make(*arguments)
        assert done.returncode == 0, done.stderr
        return self.calls()

    def calls(self) -> Sequence[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


def checkout(folder: Path, gpu: bool) -> Checkout:
    for name in COPIED:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    programs = folder / "programs"
    programs.mkdir()
    for name in ("sh", "cat", "cp", "echo", "make", "mkdir", "rm", "touch"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    script(folder / "python", PYTHON.format(python=sys.executable))
    if gpu:
        script(programs / "nvidia-smi", NVIDIA_SMI)
    return Checkout(folder, str(programs))


def script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def nvidia(tmp_path: Path) -> Checkout:
    return checkout(tmp_path, gpu=True)


@pytest.fixture
def plain(tmp_path: Path) -> Checkout:
    return checkout(tmp_path, gpu=False)


def test_installs_tensorrt_on_an_nvidia_host_once(nvidia: Checkout) -> None:
    assert nvidia.installs("install") == [EVERYTHING_ELSE, TENSORRT]
    assert nvidia.installs("install") == []
    assert nvidia.installs("install", "TENSORRT=1") == []


def test_a_host_without_a_gpu_gets_no_tensorrt(plain: Checkout) -> None:
    assert plain.installs("install") == ["-m pip install --disable-pip-version-check -c constraints.txt -e .[cpu]"]
    refused = plain.make("install", "TENSORRT=1")
    assert refused.returncode == 2
    assert "TENSORRT=1 needs an NVIDIA GPU and found no /dev/nvidia0, no libcuda.so.1" in refused.stderr


def test_refuses_other_values(nvidia: Checkout) -> None:
    refused = nvidia.make("install", "TENSORRT=0")
    assert refused.returncode == 2
    assert "TENSORRT=0: give 1, or leave it out" in refused.stderr
    assert nvidia.calls() == []


def test_installs_the_rest_where_tensorrt_cannot_be_had(nvidia: Checkout) -> None:
    (nvidia.folder / "unreachable").write_text(UNREACHABLE, encoding="utf-8")
    done = nvidia.make("install")
    assert done.returncode == 0
    assert nvidia.calls() == [EVERYTHING_ELSE, TENSORRT]
    (line,) = done.stderr.splitlines()
    for part in (
        "TensorRT is not installed, everything else is",
        "tensorrt-cu13-libs 11.0.0.114 is a placeholder",
        "URLError: <urlopen error [Errno -2] Name or service not known>",
        "make install TENSORRT=1",
        ".venv/tensorrt-install.log",
    ):
        assert part in line
    assert (nvidia.folder / ".venv/tensorrt-install.log").read_text(encoding="utf-8") == UNREACHABLE


def test_tries_tensorrt_again_only_when_asked(nvidia: Checkout) -> None:
    unreachable = nvidia.folder / "unreachable"
    unreachable.write_text(UNREACHABLE, encoding="utf-8")
    nvidia.make("install")
    assert nvidia.installs("install") == []
    assert nvidia.make("install", "TENSORRT=1").returncode == 2
    unreachable.unlink()
    assert nvidia.installs("install") == []
    assert nvidia.installs("install", "TENSORRT=1") == [TENSORRT]
    assert nvidia.installs("install", "TENSORRT=1") == []


def test_gives_pips_last_error_where_it_is_another(nvidia: Checkout) -> None:
    text = "ERROR: first\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    (nvidia.folder / "unreachable").write_text(text, encoding="utf-8")
    (line,) = nvidia.make("install").stderr.splitlines()
    assert "Could not install packages due to an OSError: [Errno 28] No space left on device. To try again" in line


def test_tries_everything_again_after_the_constraints_changed(nvidia: Checkout) -> None:
    (nvidia.folder / "unreachable").write_text(UNREACHABLE, encoding="utf-8")
    nvidia.make("install")
    stamp = nvidia.folder / ".venv/.tensorrt"
    changed = stamp.stat().st_mtime_ns + 10**9
    assert stamp.exists()
    os.utime(nvidia.folder / "constraints.txt", ns=(changed, changed))
    assert nvidia.installs("install") == [EVERYTHING_ELSE, TENSORRT]


def test_a_set_of_constraints_stays_until_another_is_named(nvidia: Checkout) -> None:
    nvidia.installs("install")
    other = [call.replace("constraints.txt", "constraints-torch-2.11.txt") for call in (EVERYTHING_ELSE, TENSORRT)]
    assert nvidia.installs("install", "CONSTRAINTS=constraints-torch-2.11.txt") == other
    assert nvidia.installs("install") == []
    assert nvidia.installs("install", "CONSTRAINTS=constraints.txt") == [EVERYTHING_ELSE, TENSORRT]


@pytest.mark.parametrize(
    ("target", "given", "option"),
    [
        ("sweep", "ROW_TIMEOUT=3600", "--row-timeout '3600'"),
        ("sweep", "TIME_LIMIT=1h30m", "--time-limit '1h30m'"),
        ("sweep", "SIZES=x.0=1,4,8 y.1=2,3", "--sizes 'x.0=1,4,8 y.1=2,3'"),
        *((target, "MONITOR=1", "--monitor") for target in ("sweep", "pipeline", "profile")),
    ],
)
def test_a_variable_is_an_option_where_it_is_given(plain: Checkout, target: str, given: str, option: str) -> None:
    assert option in plain.make("-n", target, given).stdout
    assert option.split()[0] not in plain.make("-n", target).stdout


@pytest.mark.parametrize(
    ("target", "former", "now"),
    [
        ("sweep", "BUDGET", "TIME_LIMIT="),
        ("sweep", "BUILDS", "a sweep after bakeoff doctor --cache clear"),
        ("sweep", "DEADLINE", "ROW_TIMEOUT="),
        ("pipeline", "OPTIONS", "MODEL='owl[steps=10]'"),
        ("pipeline", "PRESET", "MODEL=owl:PRESET"),
        ("profile", "PRESET", "MODEL=owl:PRESET"),
        ("export", "PRESET", "MODEL=wm:PRESET.WORKLOAD"),
        ("export", "WORKLOAD", "MODEL=wm:PRESET.WORKLOAD"),
    ],
)
def test_the_former_name_of_a_variable_is_refused(plain: Checkout, target: str, former: str, now: str) -> None:
    refused = plain.make("-n", target, f"{former}=60")
    assert f"{former}= is now {now}" in refused.stderr
    assert refused.returncode


def test_values_may_hold_apostrophes(plain: Checkout) -> None:
    command = plain.make("-n", "sweep", "NOTE=don't freeze", "CHECKPOINT=/data/o'brien/w.pt").stdout
    words = shlex.split(command.partition("bakeoff sweep")[2].replace("\\\n", " "))
    assert words == ["wm", "--checkpoint", "/data/o'brien/w.pt", "--note", "don't freeze"]


def test_a_pipeline_takes_mixes_and_has_a_model_of_its_own(plain: Checkout) -> None:
    asked = ("MODEL=matrix[steps=3]", "UNITS=20", "MIX=best wm=inductor[freezing]/bf16,image=eager/fp32")
    command = " ".join(plain.make("-n", "pipeline", *asked, "RESUME=1").stdout.split())
    assert "bakeoff pipeline 'matrix[steps=3]'" in command
    assert "--mix 'best' --mix 'wm=inductor[freezing]/bf16,image=eager/fp32'" in command
    assert "--units '20'" in command
    assert "--resume" in command
    plainly = plain.make("-n", "pipeline").stdout
    assert "bakeoff pipeline 'owl'" in plainly
    assert "--" not in plainly.partition("'owl'")[2]


def test_replaces_the_cpu_builds_when_a_gpu_appears(plain: Checkout) -> None:
    plain.installs("install")
    script(plain.folder / "programs" / "nvidia-smi", NVIDIA_SMI)
    assert plain.installs("install") == ["-m pip uninstall --yes torch onnxruntime", EVERYTHING_ELSE, TENSORRT]
    assert plain.installs("install") == []


@pytest.mark.parametrize("sign", ["dev/nvidia0", "dev/nvidia3", "usr/lib/x86_64-linux-gnu/libcuda.so.1"])
def test_sees_a_gpu_without_nvidia_smi(plain: Checkout, sign: str) -> None:
    """As in a container that has the device and the driver's libraries, but not that program."""
    path = plain.folder / "system" / sign
    path.parent.mkdir(parents=True)
    path.touch()
    done = plain.make("install")
    assert f"Installing for an NVIDIA GPU (found {path}): about 5 GB.\n" in done.stdout
    assert plain.calls() == [EVERYTHING_ELSE, TENSORRT]


def test_sees_the_drivers_library_where_the_loader_does(plain: Checkout) -> None:
    (plain.folder / "driver").mkdir()
    (plain.folder / "driver" / "libcuda.so.1").touch()
    assert plain.installs("install", f"LD_LIBRARY_PATH=/nowhere:{plain.folder}/driver") == [EVERYTHING_ELSE, TENSORRT]


def test_says_once_what_it_installs_for(plain: Checkout, tmp_path_factory: pytest.TempPathFactory) -> None:
    said = plain.make("install").stdout
    assert "Installing for the CPU: no /dev/nvidia0, no libcuda.so.1, and nvidia-smi -L shows none.\n" in said
    assert "Missing" not in said
    assert "Installing" not in plain.make("install").stdout
    nvidia = checkout(tmp_path_factory.mktemp("nvidia"), gpu=True)
    assert "Installing for an NVIDIA GPU (found nvidia-smi): about 5 GB.\n" in nvidia.make("install").stdout
    assert "Installing" not in nvidia.make("install").stdout


def test_names_missing_compilers_before_anything_is_fetched(nvidia: Checkout) -> None:
    said = nvidia.make("install").stdout
    before = said.partition("-m pip install")[0]
    assert "Missing: Triton needs a C compiler and found none (looked for $CC, gcc, clang); install gcc\n" in before
    assert "Missing: no C++ compiler found" in before
    for name in ("gcc", "g++"):
        script(nvidia.folder / "programs" / name, "#!/bin/sh\n")
    (nvidia.folder / ".venv/.installed-gpu").unlink()
    said = nvidia.make("install", f"CUDA_HOME={nvidia.folder}/named").stdout
    assert "C compiler" not in said
    assert f"Missing: no CUDA toolkit found ({nvidia.folder}/named/include/cuda_runtime_api.h does not exist" in said
    programs = nvidia.folder / "programs"
    script(programs / "nvcc", "#!/bin/sh\n")
    (nvidia.folder / ".venv/.installed-gpu").unlink()
    assert "No CUDA toolkit here: aoti takes the one that the wheels" in nvidia.make("install").stdout
