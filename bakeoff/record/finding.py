"""Defines findings, observations on one run, and the codes of findings about a session's recording."""

from dataclasses import dataclass
from typing import Literal

SessionCode = Literal[
    "level-dropped",  # ranges of a level were left out, because recording cost more than the limit
    "live-failed",  # the live display stopped with an error
    "monitor-failed",  # the monitor did not start or gave no report
    "names-left-out",  # more names, or a deeper nesting, than are kept
    "no-device-times",  # times of a CUDA device were asked for, and some or all could not be read
    "open-ranges",  # ranges that had not ended when the session did
    "overlap",  # ranges ran at the same time, in threads or coroutines
    "rank-unknown",  # torch.distributed is in use, but this process's rank was not found out
    "range-used-twice",  # one range object was entered more than once
    "series-left-out",  # more series than are kept
    "steps-left-out",  # more step indices than are kept
    "timestep-on-device",  # a timestep that could be read only by waiting for the device
    "units-outside",  # units ran outside sessions, where they are only ranges
    "unit-in-unit",  # a unit was opened within another one
    "wrong-value",  # a value that cannot be recorded: frames, an index, a kind, a sample
]


@dataclass(frozen=True, slots=True)
class Finding:
    """An observation on one run. `code` is stable, `text` is for people.

    `code` is any text when a record is read, so that records of other versions stay readable; `new_finding` takes
    only the codes of this version.
    """

    code: str
    text: str


def session_finding(code: SessionCode, text: str) -> Finding:
    """Make a finding about a session's recording; type checkers refuse a code that is not listed."""
    return Finding(code, text)
