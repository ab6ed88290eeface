"""Defines findings, observations on one run, and their codes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FindingCode = Literal[
    "below_floor",  # a median below the floor of the device
    "bimodal",  # samples have two modes, so that their median says little
    "busy-host",  # load before the sweep started
    "built-beside",  # on a GPU, other builds ran while a compiler may have timed kernels to choose among them
    "clock-span",  # samples do not add up to the time that the parent saw pass
    "clocks-disagree",  # both clocks time the same calls, but their medians differ
    "cold",  # caches were flushed before each timed call
    "contention",  # other processes used the CPU in the timed window
    "drift",  # calls became slower within the timed window
    "few-units",  # a pipeline's run was over before all its units, or before its windows were full
    "flicker",  # a mix's change from unit to unit is further off than each of its slots makes it
    "gpu-shared",  # other processes used the GPU
    "insensitive",  # outputs differ too little between inputs for the limit of their error to tell inputs apart
    "known-issue",  # a known problem of a library or of the hardware with this dtype, or a kernel known to be slow
    "leak",  # memory grew from call to call
    "left-to-aten",  # operators that a compiler left to PyTorch's own kernels by design take a notable share of a call
    "leftovers",  # processes that outlived the worker
    "helpers",  # processes that the backend started did part of the work
    "log",  # output that was not kept, because the log is bounded
    "memoised",  # results are stored from call to call instead of computed
    "narrow",  # on inputs of another kind the row is further off than eager in its dtype
    "no-measure",  # eager fails or is far off in this dtype, so that limits do not follow from its own error
    "no-baseline",  # a final without eager fp32 beside the two, so that no speed-up over it is known
    "no-profile",  # a traced pass was asked for and failed
    "not-idle",  # in a comparison, the side that waits used the CPU
    "not-monitored",  # a monitor was asked for, and could not run or saw nothing
    "off-rows",  # a race's ratio is far from that of the sweep's rows
    "own-reference",  # the reference was computed in fp32 on the measured device, as the row itself
    "power-cap",  # the GPU reached its power limit in the timed window
    "proof.incomplete",  # the certificate lacks a fact
    "run-again",  # measured once more by itself, after others, a trace or changed references had ended it
    "recompiles",  # something was compiled in the timed window
    "sizes",  # at a size within its range the engine raised, was wrong, compiled again, or computed the largest
    "short-call",  # so short that its fixed costs decide how its clocks and its trace compare
    "settings",  # global torch settings that the backend left changed
    "threads",  # more cores were busy than threads allowed
    "tampered",  # files of the references changed while the row ran
    "throttled",  # the GPU lowered its clock
    "traced-unit",  # a traced unit took much longer than the others, and is in no table of operators
    "unattributed",  # a share of a pipeline's unit that no phase, glue or copy accounts for
    "warm-up",  # warm-up ended before samples were steady
    "wide",  # sampling stopped at its cap while the median's interval was still wide
]
"""Kind of observation: stable, for tests, reports and the selftest."""
UNRANKED = frozenset({
    "below_floor", "bimodal", "clock-span", "contention", "drift", "gpu-shared", "leak", "memoised", "recompiles",
    "settings", "threads", "throttled",
})  # fmt: skip
"""Codes that make a row `unstable`."""
_OF_THE_MACHINE = frozenset({"bimodal", "contention", "drift"})
"""Those among them that a race cancels, since all its sides have the same machine in turn."""
SessionCode = Literal[
    "left-out",  # more names, series or steps than are kept, or ranges that cost more than the limit
    "live-failed",  # the live display stopped with an error
    "misused",  # a range, unit or value that cannot be recorded as it was given
    "no-device-times",  # times of a CUDA device were asked for, and some or all could not be read
    "not-monitored",
    "overlap",  # ranges ran at the same time, in threads or coroutines
    "rank-unknown",  # torch.distributed is in use, but this process's rank was not found out
]
"""Codes of findings about a session's recording."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An observation on one run. `code` is stable, `text` is for people.

    `code` is any text when a record is read, so that records of other versions stay readable; `new_finding` takes
    only the codes of this version.
    """

    code: str
    text: str


def is_of_the_machine(findings: Iterable[Finding]) -> bool:
    """Return whether findings that make a row unstable are all such as interleaving with another row cancels."""
    found = {finding.code for finding in findings} & UNRANKED
    return bool(found) and found <= _OF_THE_MACHINE


def new_finding(code: FindingCode | SessionCode, text: str) -> Finding:
    """Make a finding to be stored; type checkers refuse a code that is not listed."""
    return Finding(code, text)
