"""Settings of a profiler: files, presets of keys, and what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.profile.settings import IGNORED, MOST_BYTES, MOST_TAGS, Settings

KEYS = {each.name for each in dataclasses.fields(Settings)}


def refused(values: dict[str, Any]) -> str:
    with pytest.raises(BakeoffError) as found:
        Settings.from_mapping(values, "profile.toml")
    assert found.value.code == "bad-option"
    assert "\n" not in str(found.value)
    return str(found.value)


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    toml, yaml = tmp_path / "a.toml", tmp_path / "a.yaml"
    toml.write_text('[profiling]\nenabled = true\nreport_format = "json"\ngpu_monitor_interval = 1\n')
    yaml.write_text('profiling:\n  enabled: true   # on\n  report_format: "json"\n  gpu_monitor_interval: 1\n')
    found = Settings.load(toml)
    assert (found.enabled, found.report_format, found.gpu_monitor_interval) == (True, "json", 1.0)
    assert Settings.load(yaml) == found


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"enabeld": True}, "unknown key 'enabeld'; did you mean enabled"),
        ({"enabled": True, "a\nb": 1, "c": 2}, "and 1 more"),
        ({3: 1}, "unknown key 3"),
        ({"enabled": "yes"}, "enabled is 'yes'"),
        ({"enabled": 1}, "enabled is 1"),
        ({"report_format": "pdf"}, "html, json or both"),
        ({"gpu_monitor_interval": 0.001}, "gpu_monitor_interval is 0.001"),
        ({"gpu_monitor_interval": float("nan")}, "gpu_monitor_interval is nan"),
        ({"display_interval": True}, "display_interval is True"),
        ({"max_data_points": 1}, "max_data_points is 1"),
        ({"max_data_points": 10**9}, "max_data_points"),
        ({"overhead_limit": 2.0}, "overhead_limit is 2.0"),
        ({"output_dir": ""}, "output_dir is ''"),
        ({"output_dir": "a\0b"}, "output_dir"),
        ({"session_tags": [1]}, "session_tags"),
        ({"session_tags": {"a": [1]}}, "tag 'a' is of type list"),
        ({"session_tags": {"a": float("inf")}}, "finite"),
        ({"session_tags": {"a": 2**64}}, "beyond 64 bits"),
        ({"session_tags": {"a": "\ud800"}}, "UTF-8"),
        ({"output_dir": "\ud800"}, "output_dir"),
        ({"display_interval": 16**9999}, "display_interval is a huge int"),
        ({"session_tags": {"a": "x" * 2000}}, "longer than"),
        ({"session_tags": {str(place): 1 for place in range(MOST_TAGS + 1)}}, "at most"),
        ({"profiling": 3}, "must be a table"),
        ({"profiling": {}, "enabled": True}, "move enabled"),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(values: dict[str, Any], said: str) -> None:
    assert said in refused(values)


WRONG: dict[str, list[bytes]] = {
    "a.toml": [
        b"x =",
        b"\xff",
        b"x = " + b"[" * 100_000,
        b"display_interval = " + b"9" * 400,
        b"max_data_points = " + b"9" * 5000,  # more digits than Python reads
        b"[session_tags]\nwhen = 2026-01-01",
        b"enabled = true\nenabled = false",
        b"profiling.enabled.x = true",
        b'"\\u001b[2J" = 1',
        b'output_dir = "' + b"x" * 2_000_000 + b'"',
        b"#" * (MOST_BYTES + 1),
    ],
    "a.yaml": [
        b"- 1",
        b"a: [",
        b"a: &a [x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (i + 1, i + 1, i, i) for i in range(97, 120)),
        b"enabled: !!python/object/apply:os.system ['touch owned']",
        b"1: 2\n? [a]\n: 3",
        b"session_tags: {when: 2026-01-01}",
        bytes(range(128, 256)),
    ],
}


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, texts in WRONG.items() for data in texts],
    ids=lambda part: ascii(part[:20]),
)
def test_files_that_are_no_settings_are_refused(
    tmp_path: Path, name: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(data)
    with pytest.raises(BakeoffError) as found:
        Settings.load(name)
    assert found.value.code == "bad-option"
    text = str(found.value)
    assert name in text
    assert len(text) < 720
    assert text.isprintable()
    assert not Path("owned").exists()


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BakeoffError) as found:
        Settings.load(tmp_path / name)
    assert found.value.code == "not-readable"


def test_keys_that_nothing_ever_read_warn_once_and_do_nothing() -> None:
    values = {"profiling": {"enabled": True, **dict.fromkeys(IGNORED, False)}}
    with pytest.warns(UserWarning, match="nothing reads") as said:
        assert Settings.from_mapping(values, "profile.yaml") == Settings(enabled=True)
    assert len(said) == 1
    assert all(key in str(said[0].message) for key in (*IGNORED, "profile.yaml"))
    assert not KEYS & set(IGNORED)
