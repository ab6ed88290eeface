"""Figures of tables: the same records give the same bytes, which show the records' figures."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from answers import present
from few_records import ms
from few_records import records_of as records
from records import measurement, record

from bakeoff.machine.floors import Ceiling
from bakeoff.models.errors import BakeoffError
from bakeoff.record.floor import floor
from bakeoff.record.schema import Record, Samples
from bakeoff.record.store import Stored
from bakeoff.report.figures import roofline as rooflines
from bakeoff.report.figures import variants, vega
from bakeoff.report.figures.roofline import roofline
from bakeoff.report.figures.vega import Figure, colours, envelope, styles
from bakeoff.report.pages.readme import image_of

CEILINGS = (
    Ceiling("copy", "fp32", 84 << 20, 10e9, 9e9),
    Ceiling("product", "fp32", 10**9, 100e9, 90e9),
    Ceiling("product", "bf16", 10**9, 400e9, 350e9),
)
TRAFFIC = 100_000_000
"""Bytes a call: 10 ms at the ceilings' bandwidth, while 1.5 GFLOP take 15 ms."""


def bounded(backend: str, first: float, **changes: object) -> Record:
    return record(backend, ms(first), ceilings=CEILINGS, minimum_bytes=TRAFFIC, **changes)


def drawn(kind: str, *made: Record) -> str:
    """The figure of this kind as SVG."""
    return vega.drawn(figure(kind, *made)).decode()


def texts(svg: str) -> list[str]:
    """The texts of the picture; fails where the file is not XML."""
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("}text")]


def figure(kind: str, *made: Record) -> Figure:
    """One panel, of which everything that is drawn is data."""
    rows = [Stored(f"id-{place}", entry) for place, entry in enumerate(made)]
    drawing = {
        "latency": lambda: variants.bars(rows),
        "tradeoff": lambda: variants.tradeoff(rows),
        "timeline": lambda: variants.timeline(rows),
        "roofline": lambda: rooflines.figure(rows),
    }
    return present(drawing[kind]())


SEVERAL = (
    bounded("eager", 30.0),
    bounded("inductor", 20.0, created="2026-01-02T03:05:00.000000Z"),
    bounded("tensorrt", 16.0, dtype="bf16"),
    record("onnxruntime", ms(17.0), "unstable", "too many recompiles"),
    record("aoti", status="oom", reason="needs 13 GiB, 4 are free"),
    bounded("eager", 25.0, created="2026-02-02T03:05:00.000000Z", sweep="20260202T030500-aaaaaa"),
)


class TestDeterminism:
    def test_pictures_hold_no_date_and_no_links(self) -> None:
        for kind in ("latency", "tradeoff", "timeline", "roofline"):
            text = drawn(kind, *SEVERAL)
            references = set(re.findall(r"https?://[^\"<\s]+", text))
            assert all("w3.org" in found for found in references)
            assert not re.search(r"(?:href|src)=\"(?!#)", text)


class TestLatency:
    def test_figures_floors_and_how_many_are_left_out(self) -> None:
        shown = texts(drawn("latency", *SEVERAL[1:]))
        assert "20.95 [20.50, 21.40] ms" in shown
        assert "17.95 [17.50, 18.40] ms unstable" in shown
        assert "ms a call; left out: 1 variant without figures" in shown
        assert "25.95 [25.50, 26.40] ms" in shown
        names = [text for text in shown if re.fullmatch(r"\w+ (fp32|bf16)", text)]
        assert names == ["tensorrt bf16", "inductor fp32", "eager fp32", "onnxruntime fp32"]
        rows = figure("latency", *SEVERAL[1:]).spec["data"]["values"]
        assert [row.get("floor") for row in rows] == [10.0, 15.0, 15.0, None]
        assert "long mark: floor" in figure("latency", *SEVERAL[1:]).caption

    def test_floors_are_drawn_at_their_milliseconds(self) -> None:
        """In the drawing's coordinates, the floor's distance from 0 ms is that of its milliseconds."""
        made = bounded("eager", 30.0)
        bound = present(floor(made))
        assert bound.ms == pytest.approx(15.0)
        (row,) = figure("latency", made).spec["data"]["values"]
        assert (row["floor"], row["median"], row["low"], row["high"]) == (15.0, 30.95, 30.5, 31.4)
        assert ("p99" in row, row["p99_ms"], row["end"]) == (False, None, 31.71), "twenty samples give no p99"
        assert (row["quarter"], row["three_quarters"]) == (30.475, 31.425)

    def test_the_whisker_of_a_hundred_samples_ends_at_p99(self) -> None:
        (row,) = figure("latency", record("eager", [30.0 + 0.1 * number for number in range(100)])).spec["data"][
            "values"
        ]
        assert row["p99"] == row["end"] == pytest.approx(39.801, abs=0.001)

    def test_a_row_that_is_not_ranked_does_not_stretch_the_axis(self) -> None:
        slow = record("aoti", ms(3000.0), "unstable", "two modes")
        layers = figure("latency", bounded("eager", 30.0), slow).spec["layer"]
        x, shown = layers[0]["encoding"]["x"], texts(drawn("latency", bounded("eager", 30.0), slow))
        assert x["scale"]["domain"][1] < 100
        assert "3000.95 [3000.50, 3001.40] ms unstable, cut off at the axis' end" in shown
        numbers = [float(text) for text in shown if text.isdigit()]
        assert max(numbers) <= 31.9, "the axis ends where ranked rows end"

    def test_only_failed_rows(self) -> None:
        assert image_of(records(record("inductor", status="crashed", reason="why"), record(status="timeout"))) is None

    def test_long_names_that_read_alike_keep_a_row_each(self) -> None:
        made = [bounded(f"{'a' * 60}{middle}{'b' * 60}", 10.0) for middle in "xy"]
        names = [row["name"] for row in figure("latency", *made).spec["data"]["values"]]
        assert len(set(names)) == 2
        assert max(map(len, names)) < 80


class TestOtherPlots:
    def test_no_roofline_without_ceilings_or_traffic(self) -> None:
        for made in (
            record("eager", ms(10.0)),
            record("eager", ms(10.0), ceilings=CEILINGS),
            bounded("eager", 1.0, flops=0),
        ):
            assert rooflines.figure([Stored("id", made)]) is None


def test_a_roofline_by_hand() -> None:
    """1.5 GFLOP and 100 MB in 20 ms: 75 GFLOP/s at 15 FLOP a byte; 10 GB/s and 100 GFLOP/s meet at 10."""
    found = present(roofline([Stored("id", record("eager", [20.0] * 9, ceilings=CEILINGS[:2], minimum_bytes=TRAFFIC))]))
    ((roof,), (point,)) = found
    assert (point["intensity"], point["rate"], point["above"]) == (pytest.approx(15), pytest.approx(75e9), False)
    assert [roof.at(intensity) for intensity in (5, roof.ridge, 15)] == pytest.approx([50e9, 100e9, 100e9])
    assert roof.ridge == pytest.approx(10)


def test_a_roof_of_integers_has_the_bandwidth_of_the_rows_that_multiply_them() -> None:
    """Their traffic fits into a faster level than that of the rows beside them."""
    known = (
        Ceiling("copy", "fp32", 1 << 20, 80e9, 70e9),
        Ceiling("copy", "fp32", 512 << 20, 10e9, 9e9),
        Ceiling("product", "bf16", 10**9, 300e9, 250e9),
        Ceiling("product", "int8", 10**9, 600e9, 500e9),
    )
    rows = [
        record("eager", [20.0] * 9, dtype="bf16", ceilings=known, minimum_bytes=600 << 20),
        record("inductor", [9.0] * 9, dtype="bf16", quantisation="dynamic", ceilings=known, minimum_bytes=300 << 20),
    ]
    found = present(roofline([Stored(f"id-{place}", made) for place, made in enumerate(rows)]))
    assert {roof.dtype: roof.bytes_per_s for roof in found[0]} == {"bf16": 10e9, "int8": 80e9}


def test_without_the_address_space_that_it_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    """V8 ends the process: "Fatal process out of memory: Oilpan: CagedHeap reservation"."""
    monkeypatch.setattr("bakeoff.report.figures.vega.getrlimit", lambda _: (8 << 30, -1))
    with pytest.raises(BakeoffError, match=r"address space .* raise ulimit -v") as error:
        drawn("latency", record("eager", ms(10.0)))
    assert error.value.code == "unsupported"


class TestThinning:
    def test_envelope_keeps_spikes_and_order(self) -> None:
        values = [5_000_000] * 10_000
        values[7_777] = 90_000_000
        places, found = envelope(values, 400)
        assert len(places) == len(found) <= 400
        assert places == sorted(set(places))
        assert found[places.index(7_777)] == 90.0

    @pytest.mark.parametrize("count", [0, 1, 2, 399, 400, 401, 4001])
    def test_never_more_than_asked_for(self, count: int) -> None:
        values = Samples(range(1_000_000, 1_000_000 + count))
        places, found = envelope(values, 400)
        assert len(places) == len(found) <= min(count, 400)
        assert [values[place] / 1e6 for place in places] == found


class TestStyles:
    def test_a_backend_has_one_colour_and_a_dtype_one_mark(self) -> None:
        found = styles([record("eager"), record("aoti"), record("eager", dtype="bf16"), record("aoti", dtype="bf16")])
        assert found["eager fp32"].colour == found["eager bf16"].colour != found["aoti fp32"].colour
        assert found["eager fp32"].shape == found["aoti fp32"].shape != found["eager bf16"].shape

    def test_no_two_of_many_series_look_alike(self) -> None:
        dtypes = ("fp32", "bf16", "fp16")
        made = [record(f"backend{index}", dtype=dtype) for index in range(32) for dtype in dtypes]
        found = styles(made)
        assert len(found) == len(set(found.values())) == 96
        for attribute in ("shape", "dashes"):
            looks = {(style.colour, getattr(style, attribute)) for style in found.values()}
            assert len(looks) == 96, attribute

    def test_a_usual_backend_has_its_colour_whoever_stands_beside_it(self) -> None:
        alone = styles([record("inductor[freezing]")])["inductor[freezing] fp32"]
        crowd = [record(f"mine{index}") for index in range(20)]
        assert styles([*crowd, record("inductor[freezing]"), record("eager")])["inductor[freezing] fp32"] == alone
        assert colours(["context"]).items() <= colours(["context", "inductor", "eager"]).items()

    TWENTY = tuple(
        bounded(f"backend{index}", 10.0 + index, created=f"2026-01-02T03:{index:02}:05Z") for index in range(20)
    )
    """As many variants of one dtype as a full sweep has; there are fewer colours."""


class TestData:
    """What figures show, before anything is drawn."""

    ROWS = tuple(Stored(f"id-{index}", entry) for index, entry in enumerate(SEVERAL))

    INT8 = Ceiling("product", "int8", 10**9, 1000e9, 900e9)

    def test_rows_that_multiply_integers_have_a_roof_of_their_own(self) -> None:
        """1.5 GFLOP take 15 ms in fp32; the traffic of 10 ms is the limit of integers."""
        made = replace(bounded("int8", 12.0, quantisation="static"), ceilings=(*CEILINGS, self.INT8))
        found = present(roofline([Stored("id", made)]))
        assert [roof.dtype for roof in found[0]] == ["fp32", "bf16", "int8"]
        assert not found[1][0]["above"]
        faster = present(roofline([Stored("id", replace(made, measurement=measurement(ms(9.0))))]))
        assert faster[1][0]["above"]
