"""Four real gloo processes on loopback, of which rank 2 sleeps in denoise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bakeoff.profile.ranks.aggregate import aggregate

distributed = pytest.importorskip("torch.distributed")
if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("this build of torch has no gloo", allow_module_level=True)

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "profile" / "four_ranks.py"
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID")


def test_the_example_names_the_slow_rank_and_its_phase(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--folder", str(tmp_path / "out"), "--units", "16"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "straggler: rank 2, cause: denoise"
    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name.startswith("four-ranks-")
    assert len(list(folder.glob("rank-0000?.session.json"))) == 4

    report = aggregate(folder)
    assert (report.problems, report.missing, report.is_whole) == ((), (), True)
    found = report.straggler
    assert found is not None
    assert found.share is not None
    assert (found.rank, found.found_by, found.share >= 0.8) == (2, "least wait in collectives", True)
    assert 15e6 < found.excess_ns < 40e6
    assert [row.units for row in report.rows] == [15] * 4
    assert [spread.count for spread in report.spreads if spread.name == "session"] == [4]
    assert report.frames_per_s is not None
    assert 10 < report.frames_per_s < 12 / 0.029
    assert re.search(r"^wait in all_reduce, ms a unit: rank 0 \d", done.stdout, re.MULTILINE)
