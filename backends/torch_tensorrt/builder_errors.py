"""Says why TensorRT's builder failed: what it logged, which its Python interface does not pass on.

A build that fails returns None, and torch_tensorrt answers that with a bare `assert cuda_engine`
(dynamo/conversion/_TRTInterpreter.py, 2.11 to 2.14). The cause is in the errors of the builder's log alone
(torch_tensorrt/logging.py, _TRTLogger).
"""

import contextlib
import logging
from collections.abc import Iterator

from bakeoff.backends.backend import Unavailable, Unsupported
from bakeoff.models.words import counted

_LOGGER = "torch_tensorrt [TensorRT Conversion Context]"


class BuilderError(Exception):
    """TensorRT could not build an engine; the text begins with the first error that its builder logged."""


@contextlib.contextmanager
def builder_errors() -> Iterator[None]:
    """Replace an exception by a BuilderError, where TensorRT logged errors meanwhile; others are passed on.

    The first error is the cause; those after it tell what else went wrong because of it.
    """
    logged: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(" ".join(record.getMessage().split()))

    logger, handler = logging.getLogger(_LOGGER), Handler(logging.ERROR)
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
