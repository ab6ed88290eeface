"""The id of a machine: the same in each process, also where the host has no id and no network card."""

import uuid

import pytest
from records import HOST

from bakeoff.machine import identity


@pytest.fixture(autouse=True)
def _no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(identity.VARIABLE, raising=False)
    monkeypatch.setattr(identity, "_HOST_FILES", ())


def test_a_random_address_is_not_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As seen in a virtual machine without a network card: each process had an address, and so an id, of its own."""
    found = set()
    for random in (0x0123456789AB | 1 << 40, 0x0A9876543210 | 1 << 40):
        monkeypatch.setattr(uuid, "getnode", lambda value=random: value)
        found.add(identity._machine_id(HOST, "cpu"))
    assert len(found) == 1


def test_an_address_of_a_card_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for address in (0x0023456789AB, 0x0023456789AC):
        monkeypatch.setattr(uuid, "getnode", lambda value=address: value)
        found.add(identity._machine_id(HOST, "cpu"))
    assert len(found) == 2
