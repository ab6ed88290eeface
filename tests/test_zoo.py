"""The page about public models is what its record gives."""

import json

from zoo_page import PAGE, RECORD, page


def test_the_page_is_what_the_record_gives() -> None:
    found = json.loads(RECORD.read_bytes())
    assert len(found["models"]) + len(found["missing"]) == 10
    assert PAGE.read_text(encoding="utf-8") == page(found)
    assert "/tmp/" not in RECORD.read_text(encoding="utf-8")
