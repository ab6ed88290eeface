"""A variant's string identifies it: the printed string can be parsed, and options keep their types."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pytest

from bakeoff.backends.backend import Backend
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.variant import BackendUse, Variant, parse_use, parse_variant, split_outside_brackets, use_of


@dataclass(frozen=True, slots=True)
class Options:
    mode: Literal["default", "max-autotune"] = "default"
    flag: bool = False
    kept: bool = True
    level: int = 3
    ratio: float = 0.5
    provider: str = ""
    limit: int | None = None
    flavour: Literal["a", "b"] | None = None


BACKEND = Backend("mine", "a test's own", options=Options)


@pytest.mark.parametrize(
    ("word", "dtype"),
    [("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16"), ("half", "fp16"), ("fp32", "fp32")],
)
def test_dtypes_have_the_names_that_torch_gives_them(word: str, dtype: str) -> None:
    assert str(parse_variant(f"wm:200m.step/eager/{word}@cpu")) == f"wm:200m.step/eager/{dtype}@cpu"


@pytest.mark.parametrize(
    "text",
    [
        "wm:200m.step/eager/fp32@cpu",
        "wm:200m.step/inductor[freezing]/bf16@cpu",
        "wm:1b.step/int8+aoti[freezing,level=3]/bf16@cpu",
        "matrix-vae:full.steady5/inductor[mode=max-autotune,freezing]/tf32@cuda",
        "wm:1b.step/int8+tensorrt-aot[min_block_size=2,external=blocks.0+blocks.1]/bf16@cuda",
        "own-thing:a_b.c-d/x[ratio=0.5]+y+z[a=-1]/fp16@cuda",
    ],
)
def test_string_round_trip(text: str) -> None:
    assert str(parse_variant(text)) == text
    assert str(parse_variant(f" {text}\n")) == text


def test_parts() -> None:
    assert parse_variant("wm:1b.step/int8+aoti[freezing,level=3]/bf16@cpu") == Variant(
        "wm",
        "1b",
        "step",
        (BackendUse("int8"), BackendUse("aoti", (("freezing", True), ("level", "3")))),
        "bf16",
        "cpu",
    )
    variant = parse_variant("wm:1b.step/int8+aoti[level=3]/bf16@cpu")
    assert variant.subject == "wm:1b.step"
    assert variant.backend == "int8+aoti[level=3]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wm",
        "wm:1b/eager/fp32@cpu",
        "wm:1b.step/fp32@cpu",
        "wm:1b.step/eager/fp32",
        "wm:1b.step//fp32@cpu",
        "wm:1b.step/eager+/fp32@cpu",
        "wm:1b.step/eager[a/fp32@cpu",
        "wm:1b.step/eager]/fp32@cpu",
        "wm:1b.step/eager[a[b]]/fp32@cpu",
        "wm:../../etc.step/eager/fp32@cpu",
        "wm:1b.step/eager[a;b]/fp32@cpu",
        "wm:1b.step/eager/fp32@cpu\nwm:1b.step/eager/fp32@cpu",
    ],
)
def test_malformed_variants_are_refused(text: str) -> None:
    with pytest.raises(BakeoffError) as error:
        parse_variant(text)
    assert error.value.code == "bad-variant"
    assert f"'{text}'" in str(error.value)


def test_slug_is_part_of_a_file_name_everywhere() -> None:
    variant = parse_variant("wm:1b.step/int8+aoti[freezing,mode=max-autotune]/bf16@cpu")
    assert variant.slug == "wm_1b.step_int8_aoti_freezing_mode=max-autotune_bf16_cpu"
    hostile = replace(variant, component="../../\x00é|" + "x" * 500)
    assert re.fullmatch(r"[A-Za-z0-9._=-]{1,120}", hostile.slug)
    assert not hostile.slug.startswith("_")


@pytest.mark.parametrize(
    ("text", "separator", "parts"),
    [
        ("a,b[c,d],e", ",", ["a", "b[c,d]", "e"]),
        ("a+b[c=1+2]+d", "+", ["a", "b[c=1+2]", "d"]),
        (" a , b ", ",", ["a", "b"]),
        ("a,,b,", ",", ["a", "", "b", ""]),
        ("a[b,c", ",", ["a[b", "c"]),
        ("", ",", [""]),
    ],
)
def test_split_outside_brackets(text: str, separator: str, parts: list[str]) -> None:
    assert split_outside_brackets(text, separator) == parts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("eager", ("eager", None)),
        ("eager[]", ("eager", {})),
        ("x[a,b=2,c=]", ("x", {"a": True, "b": "2", "c": ""})),
        ("package.module:BACKEND[a=1]", ("package.module:BACKEND", {"a": "1"})),
    ],
)
def test_parse_use(text: str, found: tuple[str, Mapping[str, Any] | None]) -> None:
    assert parse_use(text) == found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x[a", "x[option,option=value]"),
        ("x[a]b", "x[option,option=value]"),
        ("x[=1]", "x[option=1]"),
        ("x[a,a=false]", "'a'"),
    ],
)
def test_malformed_use_is_refused(text: str, named: str) -> None:
    with pytest.raises(BakeoffError, match=re.escape(named)) as error:
        parse_use(text)
    assert error.value.code == "bad-option"
    assert f"'{text}'" in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (Options(), "mine"),
        (Options(flag=True), "mine[flag]"),
        (Options(kept=False), "mine[kept=false]"),
        (Options(mode="max-autotune", flag=True), "mine[mode=max-autotune,flag]"),
        (Options(level=-2, ratio=1e20), "mine[level=-2,ratio=1e20]"),
        (Options(ratio=1e-7), "mine[ratio=1e-07]"),
        (Options(provider="CPUExecutionProvider"), "mine[provider=CPUExecutionProvider]"),
        (Options(limit=4, flavour="b"), "mine[limit=4,flavour=b]"),
    ],
)
def test_options_are_read_from_their_string(options: Options, text: str) -> None:
    assert str(use_of(BACKEND, options)) == text
    parsed = parse_variant(f"toy:tiny.world/{text}/fp32@cpu").backends[0]
    read = options_of(BACKEND, dict(parsed.options))
    assert read == options
    assert [type(value) for value in asdict(read).values()] == [type(value) for value in asdict(options).values()]
    assert options_of(BACKEND, dict(use_of(BACKEND, options).options)) == options


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ({"speed": "9"}, ["speed", "mode, flag, kept, level, ratio, provider, limit, flavour"]),
        ({"mode": "fast"}, ["mine[mode=fast]", "default, max-autotune"]),
        ({"mode": True}, ["mine[mode]", "default, max-autotune"]),
        ({"flavour": "c"}, ["mine[flavour=c]", "a, b"]),
        ({"flag": "maybe"}, ["mine[flag=maybe]", "true or false"]),
        ({"level": "high"}, ["mine[level=high]", "integer"]),
        ({"level": True}, ["mine[level]", "integer"]),
        ({"provider": True}, ["mine[provider]", "text"]),
        ({"ratio": ""}, ["mine[ratio=]", "number"]),
        ({"limit": "x"}, ["mine[limit=x]", "integer"]),
    ],
)
def test_wrong_options_are_refused(pairs: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(BakeoffError) as error:
        options_of(BACKEND, pairs)
    assert error.value.code == "bad-option"
    assert [fact for fact in named if fact not in str(error.value)] == []


def test_backend_without_options_says_none() -> None:
    with pytest.raises(BakeoffError, match=r"bare .*'x'.* none") as error:
        options_of(Backend("bare", "none"), {"x": True})
    assert error.value.code == "bad-option"
