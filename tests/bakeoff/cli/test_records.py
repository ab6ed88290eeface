"""Records for other tools, each format opened with its target's own reader, and folders of records brought together."""

import csv
from pathlib import Path

import pytest
from disk import files
from pipeline_records import pipeline_record
from records import GPU_HOST, bakeoff, record

from bakeoff.record.store import load_all, save, supersede

EAGER = [20.0 + 0.1 * step for step in range(20)]
FASTER = [10.0 + 0.1 * step for step in range(20)]
SLOWER = [40.0 + 0.1 * step for step in range(20)]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Records of one machine: two sweeps of eager and inductor, a row that crashed, a superseded one, a pipeline's."""
    folder = tmp_path / "runs"
    for day, eager in (("02", EAGER), ("03", SLOWER)):
        created, sweep = f"2026-01-{day}T03:04:05.000000Z", f"sweep-{day}"
        save(folder, record("eager", eager, created=created, sweep=sweep))
        save(folder, record("inductor[freezing]", FASTER, created=created.replace("05.", "06."), sweep=sweep))
    save(folder, record("aoti", status="crashed", reason="signal 11,\nat once", created="2026-01-04T00:00:00.000000Z"))
    bad = save(folder, record("openvino", EAGER, created="2026-01-05T00:00:00.000000Z"))
    supersede(folder, bad, "busy")
    save(folder, pipeline_record())
    return folder


def test_csv_has_a_line_for_each_record(runs: Path, tmp_path: Path) -> None:
    ran = bakeoff("--runs", str(runs), "records", "export", "--to", "made/all.csv", "--machine", "all", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "1 record of pipelines not exported" in ran.err
    text = (tmp_path / "made/all.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(text.splitlines()) == 1 + len(rows) == 6
    assert [(row["sweep"], row["backend"], row["status"]) for row in rows[:4]] == [
        ("sweep-02", "eager", "ok"),
        ("sweep-02", "inductor[freezing]", "ok"),
        ("sweep-03", "eager", "ok"),
        ("sweep-03", "inductor[freezing]", "ok"),
    ]
    assert [round(float(row["vs_eager"]), 2) for row in rows[:4]] == [1.0, 1.91, 1.0, 3.74], "over its own sweep"
    first = rows[0]
    assert (float(first["median_ms"]), float(first["min_ms"]), first["batch"], first["torch"]) == (
        pytest.approx(20.95),
        20.0,
        "1",
        "2.13.0",
    )
    assert float(first["low_ms"]) < float(first["median_ms"]) < float(first["high_ms"])
    crashed = rows[4]
    assert (crashed["status"], crashed["median_ms"], crashed["vs_eager"]) == ("crashed", "", "")
    assert "signal 11" in crashed["reason"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow")
def test_mlflow_reads_a_run_for_each_record_and_gets_none_twice(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an export that was interrupted within a run."""
    mlflow = pytest.importorskip("mlflow")
    command = ("--runs", str(runs), "records", "export", "--format", "mlflow", "--to", "tracked", "--machine", "all")
    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "log_artifact", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert bakeoff(*command, cwd=tmp_path).code == 130
    for added, known in ((5, 0), (0, 5)):
        ran = bakeoff(*command, cwd=tmp_path)
        assert ran.code == 0, ran.err
        store = f"sqlite:///{tmp_path}/tracked/mlflow.db"
        assert ran.out == f"{added} records added to {store}, {known} were there\n"
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("toy").experiment_id
    found = client.search_runs([experiment], order_by=["attributes.start_time"])
    sweeps = {run.info.run_id: run for run in found if "bakeoff.sweep" in run.data.tags}
    rows = [run for run in found if run.info.run_id not in sweeps]
    assert len(rows) == 5
    assert [run.info.run_name for run in sweeps.values()] == ["sweep-02", "sweep-03", "20260102T030400-abcdef"]
    for run in rows:
        assert sweeps[run.data.tags["mlflow.parentRunId"]].info.run_name == run.data.params["sweep"]
        (file,) = client.list_artifacts(run.info.run_id)
        copy = Path(client.download_artifacts(run.info.run_id, file.path))
        (original,) = runs.glob(f"*/records/{run.data.tags['bakeoff.record']}.json")
        assert (copy.name, copy.read_bytes()) == (original.name, original.read_bytes())
    fastest = client.search_runs([experiment], "metrics.vs_eager > 3 and params.backend = 'inductor[freezing]'")
    assert [run.data.params["sweep"] for run in fastest] == ["sweep-03"]
    assert fastest[0].data.metrics["median_ms"] == pytest.approx(10.95)
    (crashed,) = [run for run in rows if run.info.status != "FINISHED"]
    assert (crashed.info.status, crashed.data.tags["bakeoff.status"]) == ("FAILED", "crashed")
    assert crashed.data.metrics == {}


class TestMerge:
    @pytest.fixture
    def theirs(self, tmp_path: Path) -> Path:
        """Another machine's records, one of which is superseded, and one that `runs` has too."""
        folder = tmp_path / "theirs"
        for backend in ("eager", "inductor"):
            bad = save(folder, record(backend, EAGER, host=GPU_HOST))
        supersede(folder, bad, "busy")
        save(folder, record("eager", EAGER, created="2026-01-02T03:04:05.000000Z", sweep="sweep-02"))
        return folder

    def test_records_of_several_machines_come_together_unchanged(
        self, runs: Path, theirs: Path, tmp_path: Path
    ) -> None:
        own = load_all(theirs).superseded[0][0].machine
        (theirs / own.folder).rename(theirs / f"its-former-name-{own.id[:6]}")
        before = {path.name: path.read_bytes() for path in [*runs.rglob("*.json"), *theirs.rglob("*.json")]}
        for said in ("3 records copied to runs, 1 were there", "0 records copied to runs, 4 were there"):
            ran = bakeoff("--runs", "runs", "records", "merge", str(theirs), cwd=tmp_path)
            assert (ran.code, ran.out.strip()) == (0, said), ran.err
        assert {path.name: path.read_bytes() for path in runs.rglob("*.json")} == before
        found = load_all(runs)
        assert (len(found.problems), len(found.superseded), len(found.machines())) == (0, 2, 3)
        assert len(list((runs / own.folder / "records").iterdir())) == 3, "the reason beside its record"

    def test_a_reason_without_its_record_is_kept(self, theirs: Path, tmp_path: Path) -> None:
        superseded = load_all(theirs).superseded[0][0]
        (theirs / superseded.folder / f"{superseded.id}.json").unlink()
        assert bakeoff("--runs", "made", "records", "merge", str(theirs), cwd=tmp_path).code == 0
        assert files(tmp_path / "made") == files(theirs)

    @pytest.mark.parametrize("edited", ["theirs", "runs"])
    def test_a_record_with_two_contents_is_named_and_nothing_is_copied(
        self, runs: Path, theirs: Path, tmp_path: Path, edited: str
    ) -> None:
        (same,) = {path.name for path in runs.rglob("*.json")} & {path.name for path in theirs.rglob("*.json")}
        (path,) = (tmp_path / edited).rglob(same)
        path.write_bytes(path.read_bytes().replace(b"c0ffee", b"decaff"))
        self.refused(same, runs, theirs, tmp_path)

    @staticmethod
    def refused(name: str, runs: Path, theirs: Path, tmp_path: Path) -> None:
        before = files(runs)
        ran = bakeoff("--runs", "runs", "records", "merge", str(theirs), cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "")
        assert name in ran.err
        assert ran.err.strip().endswith("[bad-record]")
        assert files(runs) == before
