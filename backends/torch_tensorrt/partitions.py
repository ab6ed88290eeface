"""What torch_tensorrt logs of its partitions while it compiles."""

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_TELLER = "torch_tensorrt.dynamo._DryRunTracker"
_TOTAL = re.compile(r"The graph consists of (\d+) Total Operators, of which (\d+) operators are supported")
_LEFT = re.compile(r"^Node: (\S+), with layer location: ", re.MULTILINE)
_ENGINE = re.compile(r"TRT Engine #\d+ - Submodule name: (\S+)\n.*\n\s*Number of Operators in Engine: (\d+)")


@dataclass(slots=True)
class PartitionLog:
    """What torch_tensorrt says of its partitions while it compiles."""

    text: str = ""

    @property
    def operators(self) -> tuple[int, int] | None:
        """In the graph, and of these convertible."""
        found = _TOTAL.search(self.text)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def left(self) -> Counter[str]:
        """Operators that PyTorch runs, by name."""
        names = (name.removeprefix("torch.ops.").removesuffix(".default") for name in _LEFT.findall(self.text))
        return Counter(names)

    @property
    def engines(self) -> dict[str, int]:
        """Operators of each engine."""
        return {name: int(count) for name, count in _ENGINE.findall(self.text)}


@contextlib.contextmanager
def capture_partition_log() -> Iterator[PartitionLog]:
    """Hear what torch_tensorrt logs of its partitions, for debugging only by its own choice (_DryRunTracker.py)."""
    told = PartitionLog()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.text += record.getMessage()

    teller, ear = logging.getLogger(_TELLER), Ear()
    before = teller.level, teller.propagate
    teller.addHandler(ear)
    teller.setLevel(logging.DEBUG)
    teller.propagate = False
    try:
        yield told
    finally:
        teller.removeHandler(ear)
        teller.setLevel(before[0])
        teller.propagate = before[1]
