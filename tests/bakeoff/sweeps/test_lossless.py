"""A row whose outputs equal eager's bit for bit says so; one unit in the last place is enough that it does not."""

import pytest
from lab import FAST, Recorder, Swept, marked_folder, outcome, sweep

from bakeoff.bring.bring import bring
from bakeoff.models.sizes import parse_sizes
from bakeoff.plan.request import Request
from bakeoff.record.schema import Record

SOURCE = """
import torch

def model():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    return layers.eval(), {"input": torch.randn(4, 8)}
"""
EAGER, KEEPS, ROUNDS_UP, ROUNDS_OTHERS_UP = (
    "eager",
    "last_bits:KEEPS",
    "last_bits:ROUNDS_UP",
    "last_bits:ROUNDS_OTHERS_UP",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("lossless")
    (folder / "mine.py").write_text(SOURCE)
    with marked_folder(folder):
        component = bring(f"{folder}/mine.py:model", 0, 1, Recorder(), parse_sizes(["input.0=2,4"]))
    backends = (EAGER, KEEPS, ROUNDS_UP, ROUNDS_OTHERS_UP)
    return sweep(Request(component, backends=backends, dtypes=("fp32",), device="cpu", policy=FAST), folder)


@pytest.fixture(scope="module")
def records(swept: Swept) -> dict[str, Record]:
    return swept.records()


@pytest.mark.parametrize("backend", [EAGER, KEEPS])
def test_eager_and_what_calls_the_module_are_lossless(backend: str, records: dict[str, Record]) -> None:
    made = records[backend].measurement
    assert outcome(records[backend]) == "ok", made.reason
    assert made.lossless is True
    assert {one.which: one.lossless for one in made.sizes} == {"usual": None, "seen": True, "unseen": True}


def test_a_unit_in_the_last_place_is_no_error_but_not_lossless(records: dict[str, Record]) -> None:
    made = records[ROUNDS_UP].measurement
    assert outcome(records[ROUNDS_UP]) == "ok", made.reason
    assert made.lossless is False


def test_at_another_size_it_is_not_lossless_either(records: dict[str, Record]) -> None:
    made = records[ROUNDS_OTHERS_UP].measurement
    assert made.parity is not None
    assert [output.lossless for output in made.parity.outputs] == [True]
    assert made.lossless is False
