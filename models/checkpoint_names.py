"""Finds which names of a weights file are a component's own; without torch, and without reading any values.

A name is a component's own once the wrappers of training are removed: entries such as `ema` or `state_dict` that
contain the weights, `_orig_mod.` of torch.compile anywhere in a name, and prefixes that the component states.
"""

import pickletools
import zipfile
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import open_plain

MOST_PICKLE_BYTES, MOST_OPCODES = 16 << 20, 1_000_000
_ENTRIES = ("ema", "model", "state_dict", "model_state_dict")
_COMPILED = "_orig_mod."
_SHOWN = 3


def unwrapped(content: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the innermost entry that contains the weights, such as `ema`; the content itself if it has none."""
    for _ in _ENTRIES:
        inner = next((content[name] for name in _ENTRIES if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            break
        content = inner
    return content


def own_names(names: Iterable[str], component: Component) -> dict[str, str]:
    """Map the names of a file's weights that belong to the component to the component's own names.

    Raises BakeoffError if no name belongs to the component; the message lists beginnings of the file's names.
    """
    every = {name: name.replace(_COMPILED, "") for name in names}
    found = every
    for prefix in component.checkpoint_strip:
        if any(own.startswith(prefix) for own in found.values()):
            found = {name: own[len(prefix) :] for name, own in found.items() if own.startswith(prefix)}
    if component.checkpoint_prefixes:
        found = {name: own for name, own in found.items() if own.startswith(component.checkpoint_prefixes)}
    if not found:
        kind = f" that begin with {' or '.join(component.checkpoint_prefixes)}" if component.checkpoint_prefixes else ""
        first = list(dict.fromkeys(own.partition(".")[0] for own in every.values() if "." in own))[:_SHOWN]
        begin = f"; its keys begin with {', '.join(f'{one[:40]!r}' for one in first)}" if first else ""
        text = f"it has no keys{kind}{begin}; give a checkpoint of {component.name}"
        raise BakeoffError(text, code="bad-checkpoint")
    return found


def check_names(path: Path, component: Component) -> None:
    """Raise BakeoffError if a file has no weights of the component, as far as that is known without torch.

    A `.safetensors` file lists its names. Those of a torch archive are among the strings of its pickle, which is not
    executed. Loading the file finds its other faults.
    """
    names = _names_in(path)
    if names:
        own_names(names, component)


def _names_in(path: Path) -> list[str]:
    """Return the names in a file, perhaps with other strings; [] if they cannot be read."""
    try:
        open_plain(path).close()
        if path.suffix.lower() == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "numpy") as file:
                return list(file.keys())
        if zipfile.is_zipfile(path):
            opcodes = islice(pickletools.genops(pickle_bytes(path)), MOST_OPCODES)
            return [text for opcode, text, _ in opcodes if isinstance(text, str) and opcode.name != "GLOBAL"]
    except Exception:  # noqa: BLE001  # whatever a damaged file makes of its readers; loading it says what
        return []
    return []


def pickle_bytes(path: Path) -> bytes:
    """Return the first MOST_PICKLE_BYTES of a file's pickle, which is one record of a torch.save archive."""
    if not zipfile.is_zipfile(path):
        with open_plain(path) as file:
            return file.read(MOST_PICKLE_BYTES)
    with zipfile.ZipFile(path) as archive:
        inner = next((name for name in archive.namelist() if name.endswith("data.pkl")), "")
        with archive.open(inner) as file:
            return file.read(MOST_PICKLE_BYTES)
