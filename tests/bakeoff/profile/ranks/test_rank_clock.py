"""Clock offsets through real stores of torch on loopback, with a clock that is wrong by a known time."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bakeoff.profile.ranks.clock import PINGS, Offset, agree, offset_to_rank_0

distributed = pytest.importorskip("torch.distributed")
if not distributed.is_available():
    pytest.skip("this build of torch has no torch.distributed", allow_module_level=True)

MS = 1_000_000


@pytest.fixture
def stores() -> Callable[[int], list[Any]]:
    """Clients of one server on loopback, the first with the server in it."""

    def make(count: int) -> list[Any]:
        server = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return [server, *(distributed.TCPStore("127.0.0.1", server.port, is_master=False) for _ in range(count - 1))]

    return make


def measured(made: list[Any], clocks: dict[int, Callable[[], int]], seconds: float = 5.0) -> list[Offset]:
    world = len(made)
    with ThreadPoolExecutor(world) as pool:
        pending = [
            pool.submit(offset_to_rank_0, store, "key", rank, world, seconds, clocks.get(rank, time.time_ns))
            for rank, store in enumerate(made)
        ]
        return [each.result(30) for each in pending]


@pytest.mark.parametrize("ahead_ns", [3_000_000_000, -3_000_000_000, 0])
def test_a_clock_that_is_wrong_by_three_seconds_is_found(stores: Any, ahead_ns: int) -> None:
    own, found = measured(stores(2), {1: lambda: time.time_ns() + ahead_ns})
    assert own == Offset(0, 0)
    assert found.ns == pytest.approx(-ahead_ns, abs=1 * MS)
    assert found.error_ns is not None
    assert 0 < found.error_ns < 5 * MS
    assert abs(found.ns + ahead_ns) <= found.error_ns
    assert found.text == ""


def test_every_rank_gets_its_own_offset(stores: Any) -> None:
    clocks: dict[int, Callable[[], int]] = {
        rank: lambda rank=rank: time.time_ns() - rank * 1_000_000_000  # type: ignore[misc]
        for rank in range(1, 4)
    }
    for rank, offset in enumerate(measured(stores(4), clocks)):
        assert offset.ns == pytest.approx(rank * 1_000_000_000, abs=2 * MS), rank


def test_a_rank_whose_rank_0_never_comes_goes_on(stores: Any) -> None:
    _, client = stores(2)
    before = time.monotonic()
    found = offset_to_rank_0(client, "key", 1, 2, 0.3)
    assert time.monotonic() - before < 60
    assert (found.ns, found.error_ns) == (None, None)
    assert "rank 0 did not answer within 0.3 s" in found.text


def test_rank_0_goes_on_without_ranks_that_never_come(stores: Any) -> None:
    server, client, _absent = stores(3)
    before = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        own = pool.submit(offset_to_rank_0, server, "key", 0, 3, 0.5)
        came = pool.submit(offset_to_rank_0, client, "key", 1, 3, 0.5)
    assert time.monotonic() - before < 60
    assert came.result().ns == pytest.approx(0, abs=1 * MS)
    assert own.result().text.startswith("1 of 2 other ranks opened a session within 0.5 s")


def test_a_store_works_after_a_wait_that_was_in_vain(stores: Any) -> None:
    server, client = stores(2)
    offset_to_rank_0(client, "first", 1, 2, 0.2)
    server.set("later", "1")
    assert client.get("later") == b"1"
    assert measured([server, client], {})[1].ns == pytest.approx(0, abs=1 * MS)


def test_hardly_anything_stays_in_the_store(stores: Any) -> None:
    made = stores(3)
    before = made[0].num_keys()
    measured(made, {})
    assert made[0].num_keys() - before < PINGS


def test_a_clock_that_was_set_back_gives_no_offset(stores: Any) -> None:
    falling = iter(range(10**18, 0, -(10**9)))
    _, found = measured(stores(2), {1: lambda: next(falling)})
    assert found.ns is None
    assert "set back" in found.text


def test_a_store_that_is_gone_is_a_sentence() -> None:
    class Gone:
        def __getattr__(self, _name: str) -> Any:
            def fail(*_: Any) -> None:
                raise RuntimeError("Connection reset by peer\n  at frame #0")

            return fail

    found = offset_to_rank_0(Gone(), "key", 1, 2)
    assert "(Connection reset by peer)" in found.text
    assert "1 other rank opened" in offset_to_rank_0(Gone(), "key", 0, 2).text


def test_all_ranks_agree_on_what_the_first_one_proposes(stores: Any) -> None:
    made = stores(4)
    with ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(agree, store, "key", f"rank-{rank}") for rank, store in enumerate(made)]
    (agreed,) = {each.result() for each in pending}
    assert agreed in {f"rank-{rank}" for rank in range(4)}
    assert agree(made[0], "other", "again") == "again"


def test_agreement_does_not_wait_for_ever(stores: Any) -> None:
    (server,) = stores(1)
    server.add("key/first", 1)  # by a rank that died before it proposed anything
    with pytest.raises(RuntimeError):
        agree(server, "key", "mine", 0.2)


def test_a_store_of_files_serves_too(tmp_path: Path) -> None:
    made = [distributed.FileStore(str(tmp_path / "store"), 2) for _ in range(2)]
    for store in made:
        store.set_timeout(timedelta(seconds=5))
    found = measured(made, {1: lambda: time.time_ns() - 3_000_000_000})[1]
    assert found.ns is not None
    assert found.error_ns is not None
    assert abs(found.ns - 3_000_000_000) <= found.error_ns
