"""Which rank a process is: by torch.distributed where it is initialised, else by what a launcher set."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from bakeoff.profile.ranks import facts
from bakeoff.profile.ranks.facts import agree, rank_facts
from bakeoff.record.session import RankFacts

VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(facts, "_distributed", lambda: None)
    facts._opened.clear()
    yield
    facts._opened.clear()


def told(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def found(name: str = "toy", device: str = "") -> tuple[RankFacts, list[str]]:
    said: list[str] = []
    made = rank_facts(device, "model", name, said.append)
    assert made is not None
    return made, said


def test_a_process_that_is_alone_is_no_rank() -> None:
    said: list[str] = []
    assert rank_facts("", "model", "toy", said.append) is None
    assert said == []


def test_the_launchers_variables_tell_rank_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, RANK="3", WORLD_SIZE="8", LOCAL_RANK="1", MASTER_ADDR="10.0.0.1", MASTER_PORT="29500")
    made, said = found(device="GPU-a")
    assert (made.rank, made.world, made.device) == (3, 8, "GPU-a")
    assert (made.host, made.pid, made.parallelism) == (socket.gethostname(), os.getpid(), "model")
    assert said == []


@pytest.mark.parametrize(
    ("rank", "world"), [("8", "8"), ("x", "8"), ("1", ""), ("", "8"), ("-1", "8"), ("1", "9" * 30), ("²", "8")]
)
def test_variables_that_are_no_rank_are_said(monkeypatch: pytest.MonkeyPatch, rank: str, world: str) -> None:
    told(monkeypatch, RANK=rank, WORLD_SIZE=world)
    said: list[str] = []
    assert rank_facts("", "model", "toy", said.append) is None
    assert "no rank of a world" in said[0]


def group_of_another_process(rank: int, sessions: int, **variables: str) -> str:
    """The group that another rank finds for its last session."""
    script = (
        "from bakeoff.profile.ranks.facts import rank_facts\n"
        f"for _ in range({sessions}): made = rank_facts('', 'model', 'toy')\n"
        "print(made.group)"
    )
    environment = os.environ | variables | {"RANK": str(rank)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_a_store_ranks_of_a_run_have_one_group_and_its_sessions_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}
    told(monkeypatch, RANK="0", **run)
    first, second = found()[0].group, found()[0].group
    assert first != second
    assert group_of_another_process(1, 1, **run) == first
    assert group_of_another_process(1, 2, **run) == second
    assert group_of_another_process(1, 1, **run | {"MASTER_PORT": "29501"}) != first


class OneStore:
    """A store of which every rank but this one is missing."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def add(self, key: str, amount: int) -> int:
        self.held[key] = str(int(self.held.get(key, 0)) + amount)
        return int(self.held[key])

    def set(self, key: str, value: str) -> None:
        self.held[key] = value

    def get(self, key: str) -> bytes:
        return self.held[key].encode()

    def wait(self, keys: list[str], timeout: Any) -> None:
        if any(key not in self.held for key in keys):
            raise RuntimeError(f"Wait timeout after {timeout}")


def initialised(store: object, rank: int = 1, world: int = 4) -> Any:
    def default() -> object:
        if isinstance(store, Exception):
            raise store
        return store

    return SimpleNamespace(
        get_rank=lambda: rank,
        get_world_size=lambda: world,
        distributed_c10d=SimpleNamespace(_get_default_store=default),
    )


def test_the_process_group_counts_for_more_than_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, RANK="0", WORLD_SIZE="2")
    monkeypatch.setattr(facts, "_distributed", lambda: initialised(OneStore()))
    made, said = found()
    assert (made.rank, made.world, said) == (1, 4, [])


def test_ranks_get_their_group_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store = OneStore()
    groups = []
    for rank in (1, 2):
        monkeypatch.setattr(facts, "_distributed", lambda rank=rank: initialised(store, rank))
        facts._opened.clear()
        groups.append([found()[0].group, found()[0].group, found("other")[0].group])
    assert groups[0] == groups[1]
    assert len(set(groups[0])) == 3


@pytest.mark.parametrize("error", [ValueError("not initialised"), AttributeError("no such function")])
def test_a_group_without_a_store_is_said(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    told(monkeypatch, MASTER_ADDR="a")
    monkeypatch.setattr(facts, "_distributed", lambda: initialised(error))
    assert "shows no store" in found()[1][0]


def test_all_ranks_agree_on_what_the_first_one_proposes() -> None:
    made = torch_stores(4)
    with ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(agree, store, "key", f"rank-{rank}") for rank, store in enumerate(made)]
    (agreed,) = {each.result() for each in pending}
    assert agreed in {f"rank-{rank}" for rank in range(4)}
    assert agree(made[0], "other", "again") == "again"


def test_agreement_does_not_wait_for_ever() -> None:
    (server,) = torch_stores(1)
    server.add("key/first", 1)  # by a rank that died before it proposed anything
    with pytest.raises(RuntimeError):
        agree(server, "key", "mine", 0.2)


def torch_stores(count: int) -> list[Any]:
    """Clients of one server on loopback, the first with the server in it."""
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    server = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return [server, *(distributed.TCPStore("127.0.0.1", server.port, is_master=False) for _ in range(count - 1))]


def test_torch_is_not_imported_to_find_out() -> None:
    script = (
        "import sys\nfrom bakeoff.profile.ranks.facts import rank_facts\n"
        "assert rank_facts('', 'data') is not None\nprint('torch' in sys.modules)"
    )
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
