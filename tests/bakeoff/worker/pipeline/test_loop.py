"""Which slots a value of a loop depends on."""

from bakeoff.models.pipelines import resolve_pipeline
from bakeoff.worker.pipeline.parity import calls_of_first, slots_behind


def test_a_value_depends_on_the_slots_whose_programs_had_a_part_in_it() -> None:
    pipeline = resolve_pipeline("toy")
    loop = pipeline.loop(pipeline.preset("tiny"), pipeline.options(steps=3))
    behind = slots_behind(loop, 0)
    world, both = frozenset({"world"}), frozenset({"world", "stream"})
    assert {name: behind[name] for name in ("x", "cache_k", "z", "video", "cache")} == {
        "x": world,
        "cache_k": world,
        "z": world,
        "video": both,
        "cache": both,
    }
    assert slots_behind(loop, -1) == {"t.0": frozenset(), "t.1": frozenset(), "t.2": frozenset()}
    assert calls_of_first(loop, 2) == {("world", "world"): 6, ("stream", "stream"): 2}
