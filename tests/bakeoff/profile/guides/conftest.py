from collections.abc import Iterator
from pathlib import Path

import pytest
from guide_runs import profiler_in

from bakeoff.profile import InferixProfiler


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[InferixProfiler]:
    made = profiler_in(tmp_path)
    yield made
    made.uninstall()
