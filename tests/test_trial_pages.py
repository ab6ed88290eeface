"""Pages that trials write are what their records give, and figures of the whole are those of this tree."""

import json
import re

import architecture_page
import gpu_plans_page
import promises_page
import pytest
import sweep_times_page
from count_lines import PRODUCT


def test_the_page_is_what_the_record_gives() -> None:
    recorded = sweep_times_page.RECORD.read_text(encoding="utf-8")
    assert sweep_times_page.PAGE.read_text(encoding="utf-8") == sweep_times_page.page(json.loads(recorded))
    assert "/tmp/" not in recorded


def test_the_page_of_promises_is_what_its_lines_give() -> None:
    assert promises_page.PAGE.read_text(encoding="utf-8") == promises_page.page(promises_page.read())


def test_the_page_of_pretended_gpus_is_what_the_planner_says() -> None:
    text = gpu_plans_page.PAGE.read_text(encoding="utf-8")
    assert gpu_plans_page.block() in text


def test_the_figures_of_the_architecture_are_those_of_this_tree() -> None:
    """To 5 %, so that a page that is written anew now and then stays right."""
    text = architecture_page.PAGE.read_text(encoding="utf-8")
    written = " ".join(text.partition(architecture_page.BEGIN)[2].partition(architecture_page.END)[0].split())
    files = (path for name in PRODUCT for path in (architecture_page.ROOT / name).rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    (stated,) = re.findall(r"files with ([\d,]+) lines", written)
    assert int(stated.replace(",", "")) == pytest.approx(lines, rel=0.05)
