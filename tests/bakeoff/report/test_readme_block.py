"""README's results block and the whole tables behind it."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from few_records import THREE, at, definitions, ms, publish, stored
from records import HOST, machine_of_host

from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import SCHEMA, Comparison, Round, Samples
from bakeoff.record.store import Records, load_all, save
from bakeoff.report.groups import name_of
from bakeoff.report.pages import readme, results
from bakeoff.report.render.markdown import citations
from bakeoff.report.selection import _best, chosen, shorts


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

    def test_a_row_that_its_final_decided_on_is_shown_though_the_machine_made_it_unstable(self) -> None:
        made = [at(place, name, ms(10.0 * place)) for place, name in enumerate(("onnxruntime", "openvino"), 2)]
        made += [at(1, "eager", ms(90.0)), at(5, "aoti", ms(15.0), "unstable", "two modes")]
        made.append(at(6, "inductor", ms(12.0), "unstable", "two modes"))
        sides = tuple(replace(each, measurement=replace(each.measurement, latency=None)) for each in (made[3], made[0]))
        rounds = tuple(Round((0, 1), (Samples([100]), Samples([300])), pair) for pair in range(7) for _ in range(3))
        final = Comparison(SCHEMA, made[3].created, made[3].sweep, "interleaved", 1, sides, rounds)
        ((table, shown),) = shorts(chosen(Records(stored(*made), (), ())))
        assert "aoti fp32" not in [name_of(entry.record) for entry in shown]
        shown = _best(table, stored(final)[0])
        assert [name_of(entry.record) for entry in shown] == [
            "aoti fp32",
            "onnxruntime fp32",
            "openvino fp32",
            "eager fp32",
        ]

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
