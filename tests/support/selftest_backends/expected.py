"""States the status that each of these backends must get, by the lane of the product's selftest that sweeps it."""

from bakeoff.selftest.expected import Expectation

_FAULTY, _SUBTLE, _TAMPERING, _COMPILERS, _HOT, _UNUSUAL = (
    f"selftest_backends.{name}" for name in ("faulty", "subtle", "tampering", "compiler_faults", "hot", "unusual")
)
_LEFT_TO_TORCH = "selftest_backends.left_to_torch:SPEC"

MORE = {
    "crashes": (
        Expectation(f"{_FAULTY}:KILLED", "crashed"),
        Expectation(f"{_FAULTY}:EXITS_SILENTLY", "crashed"),
        Expectation(f"{_FAULTY}:PARTIAL_RESULT", "crashed"),
        Expectation(f"{_FAULTY}:HOSTILE_RESULT", "crashed"),
        Expectation(f"{_FAULTY}:HANG", "timeout"),
        Expectation(f"{_FAULTY}:RAISES_AT_BUILD", "build_failed"),
        Expectation(f"{_FAULTY}:RAISES_AT_CALL", "call_failed"),
        Expectation(f"{_TAMPERING}:EDITS_RESULT", "crashed"),
    ),
    "wrong results": (
        Expectation(f"{_FAULTY}:HALF_PRECISION", "parity_failed"),
        Expectation(f"{_FAULTY}:CACHED_OUTPUT", "parity_failed"),
        Expectation(f"{_FAULTY}:NAN", "parity_failed"),
        Expectation(f"{_FAULTY}:WRONG_SHAPE", "parity_failed"),
        Expectation(f"{_FAULTY}:UNCHANGED_GRAPH", "fell_back"),
        Expectation(f"{_SUBTLE}:LAZY", "parity_failed"),
        Expectation(f"{_SUBTLE}:STEP_CACHE", "parity_failed", "memoised"),
        Expectation(f"{_SUBTLE}:FOLDS_INPUTS", "unstable", "memoised"),
        Expectation(f"{_SUBTLE}:RING_WRAP", "parity_failed"),
        Expectation(f"{_SUBTLE}:CHANGES_WEIGHTS", "parity_failed"),
        Expectation(f"{_SUBTLE}:LATE_FALLBACK", "fell_back"),
        Expectation(f"{_SUBTLE}:TRACED_ONLY", "fell_back"),
        Expectation(f"{_SUBTLE}:DONATES_INPUT", "parity_failed"),
        Expectation(f"{_SUBTLE}:UNWRITTEN_PAD", "parity_failed"),
        Expectation(f"{_TAMPERING}:REWRITES_LIMITS", "parity_failed", "tampered"),
    ),
    "compilers": (
        Expectation(f"{_COMPILERS}:THREADED_EAGER", "fell_back"),
        Expectation(f"{_COMPILERS}:LOST_PROVIDER", "unavailable"),
        Expectation(f"{_COMPILERS}:CLAIMS_NOTHING+eager", "fell_back"),
        Expectation(f"{_COMPILERS}:SHRINKS_UNUSED+eager", "fell_back"),
        Expectation(f"{_COMPILERS}:KEEPS_FULL+eager", "fell_back"),
        Expectation(f"{_COMPILERS}:FALLS_TO_INDUCTOR", "fell_back"),
        Expectation(f"{_COMPILERS}:FALLS_AGAIN", "fell_back"),
        Expectation(f"{_COMPILERS}:HIDES_INDUCTOR", "fell_back"),
        Expectation(f"{_COMPILERS}:HALF_ENGINE", "parity_failed"),
        Expectation("inductor[]", "ok"),
        Expectation("onnxruntime[]", "ok"),
        Expectation("openvino[]", "ok"),
        Expectation(f"{_FAULTY}:DROPS_IMAGINARY", "parity_failed", "", _LEFT_TO_TORCH, "waves"),
        Expectation(f"{_COMPILERS}:HIDES_IN_COMPLEX", "fell_back", "", _LEFT_TO_TORCH, "waves"),
        Expectation("inductor[]", "ok", "left-to-aten", _LEFT_TO_TORCH, "waves"),
        Expectation(f"{_COMPILERS}:COMPILES_RNN", "ok", "left-to-aten", _LEFT_TO_TORCH, "memory"),
    ),
    "hot": (
        Expectation(f"{_HOT}:TIERED_MEMO", "unstable", "memoised"),
        Expectation(f"{_HOT}:GAP_STALE", "parity_failed"),
        Expectation(f"{_HOT}:GAP_STALE_PADDED", "parity_failed"),
        Expectation(f"{_HOT}:GAP_PRECISION", "parity_failed"),
        Expectation(f"{_HOT}:EVERY_THIRD", "parity_failed"),
        Expectation(f"{_HOT}:EVERY_THIRD_PADDED", "parity_failed"),
        Expectation(f"{_HOT}:CONTENT_HASH", "unstable", "memoised"),
        Expectation(f"{_HOT}:CONTENT_HASH_PADDED", "unstable", "memoised"),
    ),
    "slow": (Expectation(f"{_SUBTLE}:KEEPS_OUTPUTS", "unstable", "leak"),),
    "correct": (
        Expectation(f"{_FAULTY}:NOISY", "ok", "log"),
        Expectation(f"{_UNUSUAL}:POOLED", "ok"),
        Expectation(f"{_UNUSUAL}:STRIDED", "ok"),
        Expectation(f"{_UNUSUAL}:COPIES_OUT", "ok"),
        Expectation(f"{_UNUSUAL}:DELEGATES", "ok"),
        Expectation(f"{_UNUSUAL}:REUSES_OUTPUT", "ok"),
        Expectation(f"{_UNUSUAL}:RING", "ok"),
        Expectation(f"{_UNUSUAL}:STATIC_BUFFERS", "ok"),
        Expectation(f"{_UNUSUAL}:COPIES_AT_BIND", "ok"),
        Expectation(f"{_UNUSUAL}:COPIES_WITHOUT_PORT", "ok"),
        Expectation(f"{_UNUSUAL}:SERVER", "ok", "helpers"),
    ),
}
