"""Captures and parses what torch_tensorrt logs about its partitions while it compiles."""

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_LOGGER = "torch_tensorrt.dynamo._DryRunTracker"
_TOTAL = re.compile(r"The graph consists of (\d+) Total Operators, of which (\d+) operators are supported")
_UNCONVERTED = re.compile(r"^Node: (\S+), with layer location: ", re.MULTILINE)
_ENGINE = re.compile(r"TRT Engine #\d+ - Submodule name: (\S+)\n.*\n\s*Number of Operators in Engine: (\d+)")


@dataclass(slots=True)
class PartitionLog:
    """The text that torch_tensorrt logs about its partitions, and the numbers in it."""

    text: str = ""

    @property
    def operators(self) -> tuple[int, int] | None:
        """Number of operators in the graph, and how many of them TensorRT can run; None if the log does not say."""
        found = _TOTAL.search(self.text)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def unconverted(self) -> Counter[str]:
        """Number of each operator that PyTorch runs, by name."""
        names = (name.removeprefix("torch.ops.").removesuffix(".default") for name in _UNCONVERTED.findall(self.text))
        return Counter(names)

    @property
    def engines(self) -> dict[str, int]:
        """Number of operators in each engine, by the engine's name."""
        return {name: int(count) for name, count in _ENGINE.findall(self.text)}


@contextlib.contextmanager
def capture_partition_log() -> Iterator[PartitionLog]:
    """Collect what torch_tensorrt logs about its partitions; it logs them at level DEBUG (_DryRunTracker.py)."""
    captured = PartitionLog()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            captured.text += record.getMessage()

    logger, handler = logging.getLogger(_LOGGER), Handler()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield captured
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
