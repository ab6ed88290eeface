"""Events of a session, and the models that it uses, in bounded size."""

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from bakeoff.models.types import Scalar
from bakeoff.profile.notes import Notes
from bakeoff.profile.plain import error_text, plain_data, text
from bakeoff.profile.stages import clean
from bakeoff.record.session import ModelParameters, SessionEvent

MOST_EVENTS = 2_000
MOST_MODELS = 256


class EventLog:
    """Events in the order of time; the first 2,000 are kept, the others counted. Thread-safe."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = RLock()
        self._events: list[tuple[int, str, dict[str, Scalar], bool]] = []
        self.dropped = 0

    def add(self, name: str, data: Mapping[Any, object], failed: bool = False) -> None:
        """An event now. One whose data has NaN or an infinity is marked as failed, as are those that ask for it."""
        t_ns = self._now()
        with self._lock:
            if len(self._events) >= MOST_EVENTS:
                self.dropped += 1
                return
        kept, good = plain_data(data)
        with self._lock:
            self._events.append((t_ns, clean(name), kept, failed or not good))

    def take(self, earlier: "EventLog") -> None:
        """Put those of an earlier log first."""
        with self._lock:
            together = earlier._events + self._events
            self._events = together[:MOST_EVENTS]
            self.dropped += earlier.dropped + len(together) - len(self._events)

    def events(self, session_ns: int) -> tuple[SessionEvent, ...]:
        """With times from the session's start, which was at `session_ns`: events before it have negative ones."""
        with self._lock:
            return tuple(SessionEvent(t_ns - session_ns, name, data, bad) for t_ns, name, data, bad in self._events)


class Models:
    """Sizes of models by name; recording a name again replaces it. Thread-safe."""

    def __init__(self, notes: Notes) -> None:
        self._lock = RLock()
        self._notes = notes
        self._models: dict[str, ModelParameters] = {}

    def add(self, name: str, module_or_count: object, kind: str) -> None:
        """The parameters of a torch module, each once, or their number."""
        try:
            found = _measured(clean(name), module_or_count, clean(kind))
        except Exception as error:  # noqa: BLE001  # a module that cannot be measured must not end the pipeline
            self._notes.add("wrong-value", f"parameters of '{clean(name)}' cannot be read: {error_text(error)}")
            return
        with self._lock:
            if found.name in self._models or len(self._models) < MOST_MODELS:
                self._models[found.name] = found
            else:
                self._notes.add("names-left-out", f"{MOST_MODELS} models are kept, not further ones as '{found.name}'")

    def take(self, earlier: "Models") -> None:
        """Add those of an earlier collection whose names are new."""
        with self._lock:
            self._models = {**earlier._models, **self._models}

    def models(self) -> tuple[ModelParameters, ...]:
        with self._lock:
            return tuple(self._models.values())


def _measured(name: str, module_or_count: Any, kind: str) -> ModelParameters:
    """Raises TypeError or ValueError for what is neither a module nor a number from 0."""
    if not hasattr(module_or_count, "parameters"):
        if type(module_or_count) is not int or not 0 <= module_or_count < 2**63:
            raise ValueError(f"{text(repr(module_or_count))[:80]} is neither a torch module nor a whole number from 0")
        return ModelParameters(name, module_or_count, None, "", kind)
    by_dtype: dict[str, int] = {}
    count = size = 0
    for parameter in {id(each): each for each in module_or_count.parameters()}.values():
        elements = int(parameter.numel())
        dtype = str(parameter.dtype).removeprefix("torch.")
        by_dtype[dtype] = by_dtype.get(dtype, 0) + elements
        count += elements
        size += elements * int(parameter.element_size())
    dtypes = sorted(by_dtype, key=lambda dtype: (-by_dtype[dtype], dtype))
    return ModelParameters(name, count, size, ", ".join(dtypes), kind)
