"""The exception of the project and its codes; it is in the lowest package because every package raises it."""

from collections.abc import Collection, Iterable
from typing import Literal

ErrorCode = Literal[
    "",
    "unknown-name",  # a component, backend, preset, workload, dtype, device or cache kind that does not exist
    "bad-option",  # a command-line option or a backend's option with a value it does not take
    "bad-variant",  # text that is not component:preset.workload/backend/dtype@device
    "bad-user-code",  # package.module:ATTRIBUTE that cannot be loaded
    "cannot-travel",  # a part of a live module or of its inputs that cannot be handed to another process
    "bad-config",  # a component's config with unknown or invalid fields
    "bad-input",  # tensors with other names, dtypes, shapes or devices than a program takes
    "other-thread",  # a program of an artifact that belongs to another thread
    "other-process",  # a program of an artifact that was opened before its process was forked
    "needs-gradient",  # an input of which a gradient would be recorded, which a program does not do
    "bad-checkpoint",  # a weights file that is missing, unreadable or does not fit the module
    "bad-record",  # a record file that is incomplete, edited or of another schema
    "no-record",  # no record, or several, match
    "bad-artifact",  # an artifact folder that is not what its manifest says, or not an artifact
    "host-mismatch",  # an artifact made for another host
    "bad-trace",  # a trace file that is unreadable, malformed or too large
    "bad-reference",  # a file of the reference outputs that is missing or was changed
    "other-weights",  # an artifact that was exported from other weights than those of the module it is for
    "other-function",  # a reference that is not what the module as given returned: the lab changed the module
    "wrong-output",  # an artifact or engine that does not compute what was asked
    "insensitive",  # outputs that hardly depend on the inputs, so that no check of them means anything
    "not-exportable",  # a variant whose backend has no artifact format, or that cannot run here
    "not-composable",  # backends that cannot be combined, or two that share a name
    "not-comparable",  # variants or records that cannot be compared
    "target-exists",  # a folder that would be overwritten
    "not-readable",  # a folder or file of the lab that cannot be read
    "not-writable",  # a folder or file that cannot be written: full disk, permissions
    "missing-library",
    "missing-device",
    "unsupported",  # a backend that cannot do this dtype, device or component
    "meta-tensors",  # a module whose tensors have no values, as on the meta device, or are not dense
    "worker-failed",  # a worker process that ended without a result
    "busy",  # a device that another process measures on
    "nothing-to-resume",
    "bad-page",  # a generated page that is missing, edited, stale, cites a missing record or has lost its markers
    "check-failed",  # a check of the lab itself that did not pass
    "os-error",  # the operating system refused to read or write a file, and no narrower code fits
]
"""The kind of an error. Codes are stable, for tests and callers; messages may be reworded."""


class BakeoffError(Exception):
    """Bad input or a bad environment. The message says what was asked, what was found and what to do."""

    def __init__(self, message: str, code: ErrorCode = "") -> None:
        super().__init__(message)
        self.code: ErrorCode = code


def meant(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean NEAREST` for a message about an unknown name that lists the known ones.

    "" if no known name is similar, or if there is only one, which the list names.
    """
    from difflib import get_close_matches

    by_lower, asked = {one.lower(): one for one in known}, name[:100].lower()
    if len(by_lower) == 1:
        return ""
    near = [one for one in by_lower if one.endswith(f".{asked}")] or get_close_matches(asked, by_lower, 1)
    return f"; did you mean {by_lower[near[0]]}" if near else ""


def no_such(owner: str, what: str, name: str, known: Collection[str], listed: str = "") -> BakeoffError:
    """Return the error that `owner` has no `what` of this name; it ends with the known names, or with `listed`."""
    text = f"{owner} has no {what} '{name}'{meant(name, known)}; it has {listed or ', '.join(known) or 'none'}"
    return BakeoffError(text, "unknown-name")


def bad_config(component: str, problem: str) -> BakeoffError:
    return BakeoffError(f"{component} config: {problem}", "bad-config")


def a_type(kind: type) -> str:
    """Return a class's name with its article, for a sentence about a value: `an int`, `a dict`, `None`."""
    if kind is type(None):
        return "None"
    return f"{'an' if kind.__name__[0] in 'aeiouAEIO' else 'a'} {kind.__name__}"
