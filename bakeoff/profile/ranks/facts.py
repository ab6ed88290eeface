"""Which rank this process is and of which run, by torch.distributed or the environment that a launcher sets.

torch is used only if the pipeline has imported it. Sources: torchrun's environment variables
(docs.pytorch.org/docs/stable/elastic/run.html), and the default store of torch.distributed.
"""

import hashlib
import os
import secrets
import socket
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from bakeoff.record.session import RankFacts

KEYS = "bakeoff.profile"
"""Prefix of all keys in the store."""
WAIT_S = 5.0
"""Longest wait for the rank that opened its session first, which may have died before it proposed anything."""
STORE_ERRORS = (RuntimeError, OSError, ValueError, TypeError)
"""Errors of torch's stores: DistError is a RuntimeError, and a custom store may return anything."""
_RUN = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
_opened: Counter[str] = Counter()
"""Number of sessions of this process by name; all ranks open sessions of one name in the same order."""


def agree(store: Any, key: str, proposal: str, seconds: float = WAIT_S) -> str:
    """Return the text that the first rank to call this proposes, the same on all ranks of the process group's store.

    The first rank decides and not rank 0, so that no rank waits for a late one. Raises one of STORE_ERRORS if it fails.
    """
    if store.add(f"{key}/first", 1) == 1:
        store.set(f"{key}/group", proposal)
        return proposal
    store.wait([f"{key}/group"], timedelta(seconds=seconds))
    found: bytes = store.get(f"{key}/group")
    return found.decode()


def rank_facts(
    device: str,
    parallelism: Literal["model", "data"],
    name: str = "",
    note: Callable[[str], None] = lambda _text: None,
) -> RankFacts | None:
    """Return facts about this process as one of several, or None if it is alone. Called by all ranks; does not raise.

    `device` is the UUID of its GPU, "" on a CPU; `name` is the session's. Ranks agree on their group through the store
    of an initialised process group. `note` gets a sentence about each fact that could not be read.
    """
    distributed = _distributed()
    place = _place(distributed, note)
    if place is None:
        return None
    rank, world = place
    _opened[name] += 1
    key = f"{KEYS}/{_short_hash(name)}/{_opened[name]}"
    return RankFacts(
        group=_group(_store(distributed, note), key, rank, world, note),
        rank=rank,
        world=world,
        host=socket.gethostname(),
        device=device,
        pid=os.getpid(),
        parallelism=parallelism,
    )


def _group(store: Any, key: str, rank: int, world: int, note: Callable[[str], None]) -> str:
    drawn = secrets.token_hex(6)
    if world == 1:
        return drawn
    if store is not None:
        try:
            return agree(store, key, drawn)
        except STORE_ERRORS as error:
            note(f"rank {rank} could not use the process group's store ({error!s:.120}); its run is named by variables")
    if not os.environ.get("MASTER_ADDR") and not os.environ.get("TORCHELASTIC_RUN_ID"):
        note("neither MASTER_ADDR nor a run id is set, so that two runs of this world size look like one")
    return _short_hash([*(os.environ.get(each, "") for each in _RUN), key])


def _short_hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def _distributed() -> Any:
    """Return torch.distributed if the pipeline has imported and initialised it, else None."""
    module: Any = sys.modules.get("torch.distributed")
    try:
        return module if module is not None and module.is_available() and module.is_initialized() else None
    except (*STORE_ERRORS, AttributeError):  # torch is being imported, by this thread or another one
        return None


def _store(distributed: Any, note: Callable[[str], None]) -> Any:
    """Return the store of the default process group, or None. torch has no public function that returns it."""
    if distributed is None:
        return None
    try:
        return distributed.distributed_c10d._get_default_store()
    except (*STORE_ERRORS, AttributeError) as error:
        note(f"this process group shows no store ({error!s:.120}); its run is named by variables")
        return None


def _place(distributed: Any, note: Callable[[str], None]) -> tuple[int, int] | None:
    """Return the rank and world size; None for a process that is alone."""
    if distributed is not None:
        try:
            return int(distributed.get_rank()), int(distributed.get_world_size())
        except STORE_ERRORS as error:
            note(f"torch.distributed does not tell the rank ({error!s:.120}); the environment is read instead")
    told = [os.environ.get(key, "").strip() for key in ("RANK", "WORLD_SIZE")]
    if not any(told):
        return None
    if all(text.isdecimal() and len(text) < 10 for text in told) and int(told[0]) < int(told[1]):
        return int(told[0]), int(told[1])
    note(f"RANK is {told[0]!r:.40} and WORLD_SIZE {told[1]!r:.40}, which is no rank of a world; recorded as of no rank")
    return None
