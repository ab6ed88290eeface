"""One deliberate fault: a behaviour with a name, and the edit of a source line that makes it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of one source file."""

    subject: str
    words: str
    """What the product does wrong with it."""
    file: str
    """Relative to the repository, as are the tests."""
    old: str
    """Text that the file holds exactly once."""
    new: str
    tests: tuple[str, ...]
    """Test files, or tests of a file that is slow, which a change of the source file calls for."""

    def changed(self, text: str) -> str:
        """The text of the file with the fault. Raises ValueError where the old text is not in it exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {text.count(self.old)} times; it must hold it once")
        return text.replace(self.old, self.new)
