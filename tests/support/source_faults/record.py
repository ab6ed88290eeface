"""Faults of records: their store, schema, verdicts."""

from source_faults.fault import Fault

FAULTS = (
    Fault(
        "record",
        "a file is written in place instead of being renamed",
        "bakeoff/machine/files.py",
        '        os.replace(temporary, path)\n        temporary = ""\n',
        "        path.write_bytes(data)\n",
        ("tests/bakeoff/machine/test_files.py",),
    ),
    Fault(
        "record",
        "a record whose content does not have the hash in its name is read",
        "bakeoff/record/store.py",
        "if _hash(data) != _ending(path):",
        "if not _ending(path):",
        ("tests/bakeoff/record/test_store.py",),
    ),
    Fault(
        "record",
        "the pair of a round is lost when a comparison is read",
        "bakeoff/record/codec.py",
        "_READERS[head.kind].decode(data)",
        """_READERS[head.kind].decode(__import__("re").sub(rb'"pair":[0-9]+', b'"pair":0', data))""",
        ("tests/bakeoff/record/test_schema.py",),
    ),
    Fault(
        "record",
        "a run of a pipeline that was superseded stays in the tables",
        "bakeoff/record/store.py",
        "tuple(run for run in pipelines if run.id not in reasons)",
        "tuple(pipelines)",
        ("tests/bakeoff/record/test_store.py",),
    ),
)
