"""Named suites of bakeoff.toml: what they set, what the command line replaces, and what of them is refused."""

import json
from pathlib import Path

import pytest
from lab import shorten_clocks
from records import bakeoff

from bakeoff.record.store import load_all

SUITES = """\
[suites.nightly]
components = "toy"
workload = ["world"]
backends = ["eager", "inductor"]
dtype = "fp32"
device = "cpu"
final = false
note = "every night"
[suites.nightly.policy]
warmup_s = 0.01
min_s = 0.01
full_s = 0.01
cap_s = 0.1
trace = false
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "bakeoff.toml").write_text(SUITES)
    return tmp_path


def test_a_suite_sets_what_is_not_typed(here: Path) -> None:
    def rows(*arguments: str) -> set[str]:
        done = bakeoff("sweep", *arguments, "--dry-run", "--json", cwd=here)
        assert done.code == 0, done.err
        return {row["variant"].partition("/")[2] for row in json.loads(done.out)["lines"]}

    assert rows("@nightly") == {"eager/fp32@cpu", "inductor/fp32@cpu", "inductor[freezing]/fp32@cpu"}
    assert rows("@nightly", "--backends", "eager") == {"eager/fp32@cpu"}
    assert rows("@nightly", "--dtype", "bf16", "--backends", "eager") == {"eager/bf16@cpu"}


def test_the_record_has_the_suite_as_it_was_resolved(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_clocks(monkeypatch)
    (here / "bakeoff.toml").rename(here / "other.toml")
    asked = ("sweep", "@nightly", "--config", "other.toml", "--backends", "eager", "--seed", "3")
    done = bakeoff("--runs", "runs", *asked, cwd=here)
    assert done.code == 0, done.err
    *_, record = (stored.record for stored in load_all(here / "runs").current)  # two, if eager was unstable at first
    assert record.asked["suite"] == "nightly"
    assert record.asked["note"] == record.note == "every night"
    assert (record.asked["backends"], record.asked["seed"]) == (["eager"], 3)
    assert (record.weight_seed, record.input_seed) == (3, 3)
    assert record.policy.min_s == record.asked["policy"]["min_s"] == 0.01
    assert not record.policy.trace


@pytest.mark.parametrize(
    ("entries", "typed", "said", "code"),
    [
        ("backend = 'eager'", "@nightly", "no key 'backend'; did you mean backends", "bad-config"),
        ("budget = '3m'", "@nightly", "no key 'budget'; it is now time-limit", "bad-config"),
        ("resume = true", "@nightly", "no key 'resume'", "bad-config"),
        ("threads = 'x'", "@nightly", "threads = x", "bad-config"),
        ("threads = [1]", "@nightly", "threads = [1]: give one text", "bad-config"),
        ("preset = []", "@nightly", "preset = []", "bad-config"),
        ("policy.min_sec = 3", "@nightly", "no key 'min_sec'; did you mean min_s", "bad-config"),
        ("policy.min_s = -3", "@nightly", "min_s = -3", "bad-config"),
        ("policy.min_s = 'x'", "@nightly", "Expected `float`", "bad-config"),
        ("x =", "@nightly", "bakeoff.toml: ", "bad-config"),
        ("", "@nigtly", "no suite 'nigtly'; it has nightly", "unknown-name"),
        ("", "@nightly --config none.toml", "none.toml", "not-readable"),
        ("", "@nightly @nightly", "name one suite", "bad-option"),
        ("", "toy --config bakeoff.toml", "name a suite", "bad-option"),
    ],
)
def test_what_is_refused(entries: str, typed: str, said: str, code: str, here: Path) -> None:
    (here / "bakeoff.toml").write_text(f"[suites.nightly]\ncomponents = 'toy'\n{entries}\n")
    done = bakeoff("sweep", *typed.split(), "--dry-run", cwd=here)
    assert done.code == 2
    assert said in done.err
    assert done.err.endswith(f"[{code}]\n")
    assert done.err.count("\n") == 1
