"""Runs this very command under NVIDIA's profilers, or says how where they are not installed."""

import shlex
import shutil
import subprocess
import sys
from typing import Literal

from bakeoff.cli.common import print_text, say

_COMMANDS = {
    "nsys": (
        "nsys", "profile", "--trace=cuda,nvtx,osrt,cudnn,cublas", "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop", "--cuda-graph-trace=node", "--output=bakeoff-%p",
    ),
    "ncu": (
        "ncu", "--target-processes=all", "--profile-from-start=off", "--nvtx", "--set=full", "--export=bakeoff-%p",
    ),
}  # fmt: skip
"""Nsight Systems User Guide, "CLI Profile Command Switch Options"; Nsight Compute CLI, "Profile" and "Launch"."""


def nsight(tool: Literal["nsys", "ncu"]) -> int:
    """Run this process's own command line under `tool`, which captures the traced units; returns its exit code.

    Where the tool is not on the path, the command is printed instead, and the code is 3: nothing was measured.
    """
    own = [argument for argument in sys.argv[1:] if argument not in ("--nsys", "--ncu")]
    command = [*_COMMANDS[tool], sys.executable, "-m", "bakeoff", *own, "--capture"]
    if shutil.which(tool) is None:
        say(f"{tool} is not on the path; on a host that has it, this captures the traced units with their NVTX ranges:")
        print_text(shlex.join(command))
        return 3
    say(shlex.join(command))
    return subprocess.run(command, check=False).returncode
