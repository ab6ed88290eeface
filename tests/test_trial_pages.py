"""Pages that trials write are what their records give."""

import json
from types import ModuleType

import floor_steps_page
import pytest
import sweep_times_page
import zoo_page


@pytest.mark.parametrize("trial", [floor_steps_page, sweep_times_page, zoo_page], ids=lambda trial: str(trial.__name__))
def test_the_page_is_what_the_record_gives(trial: ModuleType) -> None:
    recorded = trial.RECORD.read_text(encoding="utf-8")
    assert trial.PAGE.read_text(encoding="utf-8") == trial.page(json.loads(recorded))
    assert "/tmp/" not in recorded


def test_every_public_model_was_swept_or_is_named() -> None:
    found = json.loads(zoo_page.RECORD.read_bytes())
    assert len(found["models"]) + len(found["missing"]) == 10
