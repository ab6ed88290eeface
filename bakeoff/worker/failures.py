"""What an exception of a variant's code means; without torch, since a worker may fail before it is imported."""

_MEMORY_TEXTS = ("can't allocate memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this, or what it was raised from, is host or device memory that could not be had.

    `OutOfMemoryError` is torch's for its CUDA allocator; its CPU allocator and CUDA's runtime raise a RuntimeError.
    """
    chain: BaseException | None = error
    while chain is not None:
        text = str(chain).lower()
        named = isinstance(chain, MemoryError) or type(chain).__name__ == "OutOfMemoryError"
        if named or any(part in text for part in _MEMORY_TEXTS):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def first_line(error: BaseException, limit: int = 500) -> str:
    """The first line that says something, with the exception's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return encodable(f"{type(error).__name__}: {lines[0] if lines else 'no message'}")[:limit]


def encodable(text: str) -> str:
    """Without lone surrogates, which come from file names that are not UTF-8 and cannot be written as JSON."""
    return text.encode(errors="replace").decode()
