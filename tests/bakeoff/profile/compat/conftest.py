from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_runs import profiler_in

from bakeoff.profile.compat import InferixProfiler


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[InferixProfiler]:
    made = profiler_in(tmp_path)
    yield made
    made.profiler.uninstall()
