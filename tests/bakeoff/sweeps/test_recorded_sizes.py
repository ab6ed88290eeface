"""One engine for several sizes of a model whose calls an inspection recorded at several sizes."""

from pathlib import Path

import pytest
import torch
from lab import FAST, Recorder, Swept, marked_folder, outcome, sweep

from bakeoff.bring.bring import bring
from bakeoff.bring.inspect import inspect_file
from bakeoff.models.sizes import parse_sizes
from bakeoff.plan.request import Request
from bakeoff.record.schema import Record, SizeResult
from bakeoff.worker.brought.network import open_network

SOURCE = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.layer = nn.Embedding(50, 16), nn.Embedding(24, 16), nn.Linear(16, 16)

    def forward(self, ids, positions):
        return self.layer(torch.tanh(self.words(ids) + self.places(positions)))

def encode():
    torch.manual_seed(0)
    encoder = Encoder().eval()
    prompts = [torch.randint(0, 50, (1, length)) for length in (6, 12, 24) for _ in range(2)]

    def run():
        return [encoder(ids, torch.arange(ids.shape[1])) for ids in prompts]

    return run
"""


def swept(calls: str, folder: Path, backends: tuple[str, ...], sizes: str) -> Swept:
    with marked_folder(folder):
        component = bring(calls, 0, 1, Recorder(), parse_sizes([sizes]))
    request = Request(component, backends=backends, dtypes=("fp32",), device="cpu", threads=1, policy=FAST)
    return sweep(request, folder)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the encoder's calls, recorded by an inspection of the loop."""
    folder = tmp_path_factory.mktemp("encode")
    (folder / "mine.py").write_text(SOURCE, encoding="utf-8")
    with marked_folder(folder):
        (made,) = inspect_file(folder / "mine.py", "encode", 2, 1, Recorder(), ("encoder",)).recorded
    assert made.problem == ""
    return made.folder


@pytest.fixture(scope="module")
def encoded(encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    pytest.importorskip("onnxruntime")
    folder, sizes = tmp_path_factory.mktemp("encoded"), "ids.1,positions.0=6,12,24"
    return swept(encoder, folder, ("eager", "onnxruntime"), sizes)


def sizes_of(record: Record) -> dict[str, SizeResult]:
    return {one.name: one for one in record.measurement.sizes}


@pytest.mark.parametrize("backend", ["eager", "onnxruntime"])
def test_the_sizes_of_a_loop_are_checked(encoded: Swept, backend: str) -> None:
    (stored,) = [one for one in encoded.done.stored if one.record.variant.backend == backend]
    record = stored.record
    assert outcome(record) == "ok", record.measurement.reason
    assert record.variant.workload == "call-ids1_6_12_24"
    assert {name: (one.which, one.status) for name, one in sizes_of(record).items()} == {
        "ids.1=6": ("usual", "ok"),
        "ids.1=12": ("seen", "ok"),
        "ids.1=18": ("unseen", "ok"),
        "ids.1=24": ("seen", "ok"),
    }


def test_drawn_ids_are_among_the_recorded_ones(encoded: Swept) -> None:
    """A model has words for no others."""
    (row, *_) = encoded.plan.rows
    network = open_network(row.subject.component)
    (described,) = network.about.sets
    workload = network.component.workload(None, described.name, 1)
    inputs = {size.name: network.inputs(workload.at(size)) for size in workload.sizes}
    unseen = [inputs["ids.1=18"].checked(0, index) for index in range(2)]
    assert all(one["ids"].shape == (1, 18) for one in unseen)
    assert all(0 <= int(one["ids"].min()) <= int(one["ids"].max()) < 50 for one in unseen)
    assert not torch.equal(unseen[0]["ids"], unseen[1]["ids"])
