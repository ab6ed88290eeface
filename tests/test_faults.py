"""The deliberate faults can still be put into the sources, and their page is what the last trial recorded."""

import ast
import functools
import json

import pytest
from faults_page import LIMIT_S, PAGE, RECORD, page
from source_faults import FAULTS, ROOT


@functools.cache
def read(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@functools.cache
def dumped(file: str) -> str:
    return ast.dump(ast.parse(read(file)))


@pytest.mark.parametrize("subject", sorted({fault.subject for fault in FAULTS}))
def test_each_changes_its_file_to_other_valid_python_and_its_tests_exist(subject: str) -> None:
    for fault in (fault for fault in FAULTS if fault.subject == subject):
        changed = ast.dump(ast.parse(fault.changed(read(fault.file))))
        assert changed != dumped(fault.file), f"{fault.words}: more than spaces and comments"
        assert fault.tests
        for test in fault.tests:
            file, *names = test.split("::")
            body = ast.parse(read(file)).body
            for name in names:
                (found,) = (one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == name)
                body = found.body


def test_a_text_that_is_not_there_once_is_refused() -> None:
    fault = FAULTS[0]
    for text in ("", fault.old * 2):
        with pytest.raises(ValueError, match="it must hold it once"):
            fault.changed(text)


def test_the_page_is_what_the_record_gives() -> None:
    found = json.loads(RECORD.read_bytes())
    assert PAGE.read_text(encoding="utf-8") == page(found)
    assert "/tmp/" not in RECORD.read_text(encoding="utf-8")


def test_the_last_trial_had_all_of_them_and_caught_them() -> None:
    """So a name that was once tried stays, whatever edit makes its fault today."""
    found = json.loads(RECORD.read_bytes())["faults"]
    held = [(one["subject"], one["fault"]) for one in found]
    assert held == [(fault.subject, fault.words) for fault in FAULTS], "run them again: make faults"
    assert all(one["caught"] and one["seconds"] <= LIMIT_S for one in found)
