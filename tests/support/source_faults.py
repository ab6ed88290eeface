"""Deliberate faults in the product, such as a slip while refactoring could leave, with the tests of their subjects.

The table is source_faults.txt: `@ SUBJECT FILE < TEST ...` begins those of one file, `= ` a fault with what the product
does wrong with it, `-` lines are text that the file holds exactly once, `+` lines what stands there instead. Whoever
rewrites the code that a fault edits rewrites the edit in the same commit; its name stays.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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


def read(table: str) -> tuple[Fault, ...]:
    """The faults of a table."""
    found: list[Fault] = []
    for block in table.split("\n@ ")[1:]:
        head, *faults = block.split("\n= ")
        about, _, tests = head.partition(" < ")
        subject, file = about.split()
        for fault in faults:
            words, *lines = fault.split("\n")
            old, new = ("\n".join(line[1:] for line in lines if line[:1] == sign) for sign in "-+")
            found.append(Fault(subject, words, file, old, new, tuple(tests.split())))
    return tuple(found)


FAULTS = read("\n" + Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
