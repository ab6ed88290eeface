"""What a session has to say about its own recording: a few texts for each code, with counts."""

from threading import RLock

from bakeoff.record.finding import Finding, SessionCode, session_finding

MOST_TEXTS = 3
"""Different texts of one code; further ones are counted with the first."""


class Notes:
    """Texts by code, and how often there was each. Thread-safe."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._counts: dict[SessionCode, dict[str, int]] = {}

    def add(self, code: SessionCode, text: str, count: int = 1) -> None:
        with self._lock:
            texts = self._counts.setdefault(code, {})
            if text not in texts and len(texts) >= MOST_TEXTS:
                text = next(iter(texts))
            texts[text] = texts.get(text, 0) + count

    def take(self, earlier: "Notes") -> None:
        """Add those of an earlier collection."""
        for code, texts in earlier._counts.items():
            for text, count in texts.items():
                self.add(code, text, count)

    def findings(self) -> tuple[Finding, ...]:
        with self._lock:
            return tuple(
                session_finding(code, text if count == 1 else f"{text} ({count} times)")
                for code, texts in self._counts.items()
                for text, count in texts.items()
            )
