"""Reads what torch_tensorrt logs while it compiles: its partitions, and why TensorRT's builder failed."""

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bakeoff.backends.backend import Unavailable, Unsupported
from bakeoff.models.words import counted

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


_BUILDER = "torch_tensorrt [TensorRT Conversion Context]"


class BuilderError(Exception):
    """TensorRT could not build an engine; the text begins with the first error that its builder logged."""


@contextlib.contextmanager
def builder_errors() -> Iterator[None]:
    """Replace an exception by a BuilderError, where TensorRT logged errors meanwhile; others are passed on.

    A build that fails returns None, and torch_tensorrt answers that with a bare `assert cuda_engine`
    (dynamo/conversion/_TRTInterpreter.py, 2.11 to 2.14); the cause is in the builder's log alone
    (torch_tensorrt/logging.py, _TRTLogger). The first error is the cause; those after it tell what else went wrong
    because of it.
    """
    logged: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(" ".join(record.getMessage().split()))

    logger, handler = logging.getLogger(_BUILDER), Handler(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield
    except (Unavailable, Unsupported):
        raise
    except Exception as error:
        if not logged:
            raise
        more = f" (and {counted(len(logged) - 1, 'more error')})" if len(logged) > 1 else ""
        raise BuilderError(f"{logged[0]}{more}") from error
    finally:
        logger.removeHandler(handler)
