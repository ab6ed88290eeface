"""Checks for every backend in the table, whether or not its library is installed."""

from dataclasses import fields

import pytest

from bakeoff.backends import backend_module, backend_names, may_overlap, resolve_backend
from bakeoff.backends.backend import Backend, NoOptions
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.models.types import DEVICES
from bakeoff.variant import parse_use, parse_variant, split_outside_brackets, use_of

BACKENDS = [resolve_backend(name) for name in backend_names()]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
class TestEveryBackend:
    def test_says_in_one_sentence_what_is_missing(self, backend) -> None:
        for device in DEVICES:
            for default in backend.defaults:
                assert "\n" not in (backend.unavailable(default.options, device) or "")

    def test_options_survive_their_string(self, backend) -> None:
        assert backend.options.__dataclass_params__.frozen
        for default in backend.defaults:
            text = f"toy:tiny.world/{use_of(backend, default.options)}/fp32@cpu"
            assert str(parse_variant(text)) == text
            assert options_of(backend, dict(parse_variant(text).backends[0].options)) == default.options

    def test_says_what_it_takes_as_having_run(self, backend) -> None:
        assert backend.runs_eagerly or backend.checks

    def test_a_build_is_traced_as_it_was_timed_unless_the_compiler_has_its_own_profiler(self, backend) -> None:
        """torch's profiler needs nothing at build time; a compiler's own must be asked for there."""
        same = backend.devices if backend.build and not backend.tracer else ()
        assert backend.same_when_traced == same

    def test_what_only_prepares_names_what_builds(self, backend) -> None:
        for default in backend.defaults:
            assert bool(default.then) == (backend.build is None)
            for part in split_outside_brackets(default.then, "+") if default.then else []:
                name, pairs = parse_use(part)
                last = resolve_backend(name)
                assert last.unsupported(options_of(last, pairs or {}), default.devices[0], default.dtypes[0]) is None

    def test_default_options_are_supported(self, backend) -> None:
        for default in backend.defaults:
            assert set(default.devices) <= set(backend.devices)
            for device in default.devices:
                dtype = (default.dtypes or backend.dtypes)[0]
                assert backend.unsupported(default.options, device, dtype) is None

    def test_unknown_options_are_refused_with_the_known_ones(self, backend) -> None:
        with pytest.raises(BakeoffError) as refused:
            options_of(backend, {"nonsense": True})
        assert refused.value.code == "bad-option"
        assert "nonsense" in str(refused.value)
        assert all(field.name in str(refused.value) for field in fields(backend.options))


def test_exactly_one_baseline() -> None:
    assert [backend.name for backend in BACKENDS if backend.baseline] == ["eager"]


@pytest.mark.parametrize(
    ("reference", "code"), [("canaries:FALSE_EAGER", "not-composable"), ("canaries:OWN_BASELINE", "bad-user-code")]
)
def test_a_users_backend_cannot_be_taken_for_one_of_the_table(reference: str, code: str) -> None:
    with pytest.raises(BakeoffError) as refused:
        resolve_backend(reference)
    assert refused.value.code == code


@pytest.mark.parametrize("name", backend_names())
def test_a_backend_of_the_table_may_be_named_by_its_module(name: str) -> None:
    assert resolve_backend(f"{backend_module(name)}:BACKEND") is resolve_backend(name)


def steps_of(uses: str) -> list[tuple[Backend, object]]:
    parsed = [parse_use(part) for part in split_outside_brackets(uses, "+")]
    return [(resolve_backend(name), options_of(resolve_backend(name), pairs or {})) for name, pairs in parsed]


def suite_rows(device: str) -> list[str]:
    """What the suites run on a device, as typed, but for the dtypes."""
    return [
        "+".join(filter(None, (str(use_of(backend, default.options)), default.then)))
        for backend in BACKENDS
        for default in backend.defaults
        if device in default.devices
    ]


def test_builds_that_time_nothing_may_overlap_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_MAX_AUTOTUNE", raising=False)
    rows = suite_rows("cpu")
    found = {row for row in rows if may_overlap(steps_of(row), "cpu")}
    assert set(rows) - found == {"inductor[mode=max-autotune,freezing]", "aoti[max_autotune]"}


@pytest.mark.parametrize("row", suite_rows("cuda"))
def test_builds_on_a_gpu_overlap_on_request_alone(row: str) -> None:
    assert not may_overlap(steps_of(row), "cuda")
    assert may_overlap(steps_of(row), "cuda", beside=True)


@pytest.mark.parametrize("variable", ["TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM"])
@pytest.mark.parametrize("row", ["inductor", "aoti", "int8+inductor"])
def test_builds_that_the_environment_lets_tune_do_not_overlap(
    row: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1")
    assert not may_overlap(steps_of(row), "cpu")


def test_one_step_that_needs_the_machine_is_enough() -> None:
    assert not may_overlap(steps_of("int8+inductor[mode=max-autotune]"), "cpu")
    assert not may_overlap(steps_of("inductor[tuned]"), "cpu")


def test_builds_of_a_users_own_backend_do_not_overlap_unless_it_says_so() -> None:
    silent, states = Backend("own", ""), Backend("own", "", overlaps=lambda _: True)
    assert not may_overlap([(silent, NoOptions())], "cpu")
    assert may_overlap([(states, NoOptions())], "cpu")
    assert not may_overlap([(states, NoOptions()), (silent, NoOptions())], "cpu")
    assert not may_overlap([(silent, NoOptions())], "cpu", beside=True), "a request is for GPUs alone"
