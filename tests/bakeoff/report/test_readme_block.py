"""README's results block and the whole tables behind it."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from few_records import THREE, at, block, definitions, ms, publish, stored
from pipeline_records import failed, pipeline_record, run_of_two
from records import HOST, machine_of_host

from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import SCHEMA, Comparison, Round, Samples
from bakeoff.record.store import Records, StoredPipeline, load_all, save, supersede
from bakeoff.report.groups import name_of
from bakeoff.report.pages import readme, results
from bakeoff.report.render.markdown import citations
from bakeoff.report.selection import chosen, shorts


class TestReadmeBlock:
    def test_only_the_block_is_written(self, runs: Path) -> None:
        page = runs.parent / "README.md"
        for text in ("", "no block here\n"):
            page.write_text(text)
            assert readme.check(runs / "published") is None
            with pytest.raises(BakeoffError) as error:
                publish(runs)
            assert error.value.code == "bad-page"
        page.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter \\1 \\g<0>\n")
        assert readme.check(runs / "published") is not None
        written = publish(runs)
        assert written == [page, *(runs / "published" / name for name in (results.NAME, "latency.svg"))]
        assert readme.check(runs / "published") is None
        text = page.read_text()
        assert text.startswith(
            f"before\n{readme.BEGIN}\n![Latency of toy:tiny.world by variant](runs/published/latency.svg)\n"
        )
        assert text.endswith(f"{readme.END}\nafter \\1 \\g<0>\n")
        page.write_text(text.replace("10.95", "9.95"))
        assert readme.check(runs / "published") is not None

    @pytest.mark.parametrize("text", [f"{readme.BEGIN}\n", f"{readme.END}\n{readme.BEGIN}\n"])
    def test_block_without_an_end(self, runs: Path, text: str) -> None:
        (runs.parent / "README.md").write_text(text)
        for action in (lambda: readme.check(runs / "published"), lambda: publish(runs)):
            with pytest.raises(BakeoffError) as error:
                action()
            assert error.value.code == "bad-page"
        assert (runs.parent / "README.md").read_text() == text

    def test_cites_existing_records_only(self, runs: Path) -> None:
        save(runs, at(50, "eager", ms(11.0)))
        page = runs.parent / "README.md"
        page.write_text(f"{readme.BEGIN}\n{readme.END}\n")
        publish(runs)
        tables = (runs / "published" / results.NAME).read_text()
        addresses = definitions(tables)
        shown = re.findall(r"\[(\w+)\]\(runs/published/RESULTS\.md#(\w+)\)", page.read_text())
        assert len(shown) == 2  # the newest of each variant that is ok
        for label, anchor in shown:
            (cited,) = re.findall(rf'<a id="{anchor}"></a>\[(\w+)\]', tables)
            assert cited.startswith(label)
            assert addresses[cited].endswith(f"_{cited}.json")
        assert len(addresses) == 3
        assert all((runs / "published" / unquote(target)).is_file() for target in addresses.values())

    def test_a_component_has_its_three_fastest_rows_and_eager(self) -> None:
        names = [f"inductor[mode={number}]" for number in range(5)]
        made = [at(1, "eager", ms(90.0)), at(2, "eager", ms(80.0), dtype="bf16")]
        made += [at(3 + place, name, ms(50.0 - place)) for place, name in enumerate(names)]
        made.append(at(20, "aoti", ms(1.0), "parity_failed", "wrong"))
        ((table, shown),) = shorts(chosen(Records(stored(*made), (), ())))
        assert [name_of(entry.record) for entry in shown] == [
            *(f"{name} fp32" for name in names[:1:-1]),
            "eager fp32",
        ]
        assert len(table.rows) == len(made)

    def test_eager_is_shown_once(self) -> None:
        made = (at(1, "eager", ms(1.0)), at(2, "inductor", ms(5.0)))
        ((_, shown),) = shorts(chosen(Records(stored(*made), (), ())))
        assert [name_of(entry.record) for entry in shown] == ["eager fp32", "inductor fp32"]

    def test_no_line_is_wider_than_a_page(self) -> None:
        wide = "inductor[" + ",".join(f"option{index}=value" for index in range(20)) + "]"
        records = Records(stored(at(1, "eager", ms(9.0), label="a long label " * 30), at(2, wide, ms(1.0))), (), ())
        assert max(map(len, block(records).splitlines())) <= 160

    def test_a_frame_is_told_with_the_best_mix_and_its_baseline(self) -> None:
        made = tuple(StoredPipeline(f"run_{place:07}f", entry) for place, entry in enumerate(run_of_two()))
        text = " ".join(block(Records((), (), (), pipelines=made)).split())
        assert (
            "Deploy best, owl:200m/wm=inductor[freezing]/bf16,image=openvino/bf16@cpu: it is 2.00x as fast as eager "
            "[2.00, 2.00] (20 pairs of interleaved units, one process each). Its frames/s by what is counted, each "
            "with all before it: denoise "
        ) in text
        rows = [line.split("|") for line in block(Records((), (), (), pipelines=made)).splitlines() if line[:1] == "|"]
        assert [[cell.strip() for cell in row[1:]] for row in rows[2:]] == [
            ["**a frame of owl:200m**", "", "", "", "", "", "", "", ""],
            [
                "best",
                "50.52",
                "-",
                "19.79",
                "900",
                "2.00x",
                "1.0e-06",
                "[0000001](runs/published/RESULTS.md#0000001)",
                "",
            ],
            ["eager", "101.05", "-", "9.90", "900", "-", "1.0e-06", "[0000000](runs/published/RESULTS.md#0000000)", ""],
        ]

    def test_a_frame_of_mixes_that_are_not_ok_is_not_told(self) -> None:
        made = StoredPipeline("run_01234567", pipeline_record(made=failed()))
        assert block(Records((), (), (), pipelines=(made,))) == f"{readme.BEGIN}\n{readme.END}"

    @pytest.fixture
    def published(self, runs: Path) -> Path:
        """README with a block of three records, whose best two rows have a final, beside one that cannot run here."""
        save(runs, at(4, "aoti", status="unavailable", reason="no GPU"))
        sides = tuple(replace(made, measurement=replace(made.measurement, latency=None)) for made in THREE[:2])
        rounds = tuple(Round((0, 1), (Samples([300]), Samples([100])), pair) for pair in range(7) for _ in range(3))
        save(runs, Comparison(SCHEMA, THREE[2].created, THREE[0].sweep, "interleaved", 1, sides, rounds))
        page = runs.parent / "README.md"
        page.write_text(f"{readme.BEGIN}\n{readme.END}\n")
        publish(runs)
        assert len(citations((runs / "published" / results.NAME).read_text())) == 4
        assert readme.check(runs / "published") is None
        return page

    def test_later_records_leave_the_block_as_it_is(self, runs: Path, published: Path) -> None:
        """It is checked against the records that it cites, not against the newest."""
        text, tables_text = published.read_bytes(), (runs / "published" / results.NAME).read_text()
        for made in (
            at(50, "eager", ms(1.0), sweep="later"),
            at(51, "aoti", ms(2.0), sweep="later"),
            at(52, "eager", ms(3.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))),
        ):
            save(runs, made)
        assert readme.check(runs / "published") is None
        assert published.read_bytes() == text
        publish(runs)
        assert len(set(citations((runs / "published" / results.NAME).read_text())) - set(citations(tables_text))) == 3

    def test_what_no_run_of_the_own_commits_measured_leaves_the_pages(
        self, runs: Path, published: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        save(other, at(50, "openvino", ms(3.0), commit="0ther"))
        known = load_all(other, runs / "published")
        readme.publish(runs / "published", known, other)
        text = (runs / "published" / results.NAME).read_text()
        assert ("openvino" in text, "inductor" in text, "aoti" in text) == (True, False, False)
        assert len(load_all(runs / "published").current) == len(THREE) + 2
        assert readme.check(runs / "published") is None
        before = published.read_bytes()
        readme.publish(runs / "published", load_all(runs / "published"), tmp_path / "none")
        assert published.read_bytes() == before

    @pytest.mark.usefixtures("published")
    def test_whole_tables_and_pictures_are_checked_too(self, runs: Path) -> None:
        for name in (results.NAME, "latency.svg"):
            path = runs / "published" / name
            content = path.read_bytes()
            path.unlink()
            assert readme.check(runs / "published") is not None
            path.write_bytes(content)
        (runs / "published" / results.NAME).write_text(
            (runs / "published" / results.NAME).read_text().replace("11.40", "10.40")
        )
        assert "RESULTS.md differs" in (readme.check(runs / "published") or "")

    @pytest.mark.usefixtures("published")
    def test_a_cited_entry_that_is_gone_or_superseded(self, runs: Path) -> None:
        for name in citations((runs / "published" / results.NAME).read_text()):
            (path,) = (runs / "published").glob(f"*/records/{name}.json")
            content = path.read_bytes()
            path.unlink()
            assert name in (readme.check(runs / "published") or "")
            path.write_bytes(content)
            assert readme.check(runs / "published") is None
        supersede(runs / "published", name, "busy")
        assert readme.check(runs / "published") is not None
