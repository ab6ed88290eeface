"""Artifacts that were changed by accident or on purpose: each raises the right error, and none is opened."""

import contextlib
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")
pytest.importorskip("onnx", reason="one of the artifacts is ONNX")
pytest.importorskip("openvino", reason="one of the artifacts is OpenVINO's")

from artifacts import copy, exported, manifest_of, rewrite

from bakeoff.backends.format import HostRequirement
from bakeoff.export import BadArtifact, Mismatch, load, loader
from bakeoff.export.folder import hash_file, read_manifest
from bakeoff.export.manifest import MANIFEST, SAMPLE, Port
from bakeoff.export.sample import Reader
from bakeoff.models.errors import BakeoffError

BACKENDS = ("torch.export", "onnxruntime", "openvino")


class Opened(BaseException):
    """An artifact was opened. Not an Exception, which the loader would report as an error of the library."""


@pytest.fixture(scope="session", params=BACKENDS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact as it was exported."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        exported(f"toy:tiny.stream/{request.param}/fp32@cpu", folder / "artifact", folder / "runs")
    return folder / "artifact"


@pytest.fixture
def folder(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which nothing may be opened."""

    def opened(*_: object) -> None:
        raise Opened

    known = loader.artifact_format_of
    monkeypatch.setattr(loader, "artifact_format_of", lambda manifest: replace(known(manifest), read=opened))
    return copy(whole, tmp_path / "artifact")


def program(folder: Path) -> Path:
    return folder / manifest_of(folder).programs[0].file


def reseal(folder: Path) -> None:
    """Make the manifest agree with the changed files, as an attacker would."""
    files = {name: hash_file(folder, name) for name in os.listdir(folder) if name != MANIFEST}
    rewrite(folder, files=files)


def flip(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[min(len(data) - 1, int(len(data) * share))] ^= 0x10
    path.write_bytes(data)


def refused(folder: Path, *facts: str, code: str = "bad-artifact") -> None:
    """Loading raises an error with this code, whose message has the facts."""
    try:
        with pytest.raises(BakeoffError) as error:
            load(folder)
    except Opened:
        raise AssertionError(f"{folder} was opened") from None
    assert error.value.code == code
    assert [fact for fact in facts if fact not in str(error.value)] == [], str(error.value)
    assert isinstance(error.value, Mismatch if code == "host-mismatch" else BadArtifact)


def test_whole_it_is_opened(folder: Path) -> None:
    with pytest.raises(Opened):
        load(folder)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_one_bit_in_any_file(folder: Path, share: float) -> None:
    for name in manifest_of(folder).files:
        flip(folder / name, share)
        refused(folder, name, "SHA-256")
        flip(folder / name, share)
    flip(folder / MANIFEST, share)
    refused(folder, MANIFEST)


@pytest.mark.parametrize("left", [0.0, 0.5, 0.999])
def test_truncation_of_any_file(folder: Path, left: float) -> None:
    for name in (*manifest_of(folder).files, MANIFEST):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * left)])
        refused(folder, name)
        (folder / name).write_bytes(data)


def swap_two(folder: Path) -> None:
    first, second = folder / SAMPLE, program(folder)
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


def link_outside(folder: Path) -> None:
    path = program(folder)
    outside = folder.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def hard_link(folder: Path) -> None:
    os.link(program(folder), folder.parent / "outside")


def fifo(folder: Path) -> None:
    program(folder).unlink()
    os.mkfifo(program_name(folder))


def program_name(folder: Path) -> Path:
    return folder / manifest_of(folder).programs[0].file


def subfolder(folder: Path) -> None:
    path = program(folder)
    path.unlink()
    path.mkdir()


def edit(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / MANIFEST).read_text()
        assert old in text
        (folder / MANIFEST).write_text(text.replace(old, new, 1))

    return change


def named(name: str) -> Callable[[Path], None]:
    """A manifest that has its program somewhere else."""

    def change(folder: Path) -> None:
        manifest = manifest_of(folder)
        first = manifest.programs[0]
        files = dict(manifest.files)
        files[name] = files.pop(first.file)
        rewrite(folder, files=files, programs=(replace(first, file=name), *manifest.programs[1:]))

    return change


def with_program(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = manifest_of(folder)
        rewrite(folder, programs=(replace(manifest.programs[0], **changes), *manifest.programs[1:]))  # type: ignore[arg-type]

    return change


def resealed(**changes: object) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, **changes)


def with_sample(**changes: object) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, sample=replace(manifest_of(folder).sample, **changes))  # type: ignore[arg-type]


def require(what: str, rule: str, value: str) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, needs=(HostRequirement(what, rule, value),))  # type: ignore[arg-type]


def stranger(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(b"x")

    return change


@dataclass(frozen=True)
class Mutation:
    change: Callable[[Path], object]
    fact: str
    """Text that the message must have: the name or value that is wrong."""
    code: str = "bad-artifact"


MUTATIONS = {
    "two files swapped": Mutation(swap_two, " bytes"),
    "a file removed": Mutation(lambda folder: program(folder).unlink(), "stream."),
    "the manifest removed": Mutation(lambda folder: (folder / MANIFEST).unlink(), MANIFEST),
    "the sample removed": Mutation(lambda folder: (folder / SAMPLE).unlink(), SAMPLE),
    "a file added": Mutation(stranger("extra.so"), "'extra.so'"),
    "a hidden file added": Mutation(stranger(".hidden"), "'.hidden'"),
    "a symbolic link": Mutation(link_outside, "symbolic link"),
    "a hard link": Mutation(hard_link, "2 hard links"),
    "a fifo": Mutation(fifo, "plain file"),
    "a folder": Mutation(subfolder, "plain file"),
    "another variant written in": Mutation(edit("toy:tiny.stream", "toy:tiny.streal"), "edited"),
    "another dtype written in": Mutation(edit('"float32"', '"float16"'), "edited"),
    "an unknown dtype": Mutation(edit('"float32"', '"float99"'), "Invalid enum value"),
    "a field removed": Mutation(edit('"main"', '"nain"'), "`main`"),
    "no JSON": Mutation(lambda folder: (folder / MANIFEST).write_bytes(b"\x80\x04pickle"), MANIFEST),
    "nested without end": Mutation(lambda folder: (folder / MANIFEST).write_bytes(b"[" * 10**6), MANIFEST),
    "a manifest of 9 MiB": Mutation(lambda folder: (folder / MANIFEST).write_bytes(b" " * (9 << 20)), str(9 << 20)),
    "a later schema": Mutation(edit('"schema": 2', '"schema": 3'), "schema 3"),
    "the schema before": Mutation(edit('"schema": 2', '"schema": 1'), "schema 1, but this version reads 2"),
    "no schema": Mutation(edit('"schema": 2', '"schemo": 2'), "schema"),
    "a path upwards": Mutation(named("../outside"), "'../outside'"),
    "an absolute path": Mutation(named("/etc/passwd"), "'/etc/passwd'"),
    "a path of two": Mutation(named("a/b"), "'a/b'"),
    "a path of dots": Mutation(named(".."), "'..'"),
    "a path with a null byte": Mutation(named("a\0b"), "not a plain name"),
    "a path of Windows": Mutation(named("..\\outside"), "outside'"),
    "a program in no file": Mutation(with_program(file="other"), "'other'"),
    "weights in no file": Mutation(with_program(constants=("../w",)), "'../w'"),
    "a negative shape": Mutation(with_program(inputs=(Port("z", "float32", (-1,), ""),)), "`int` >= 0"),
    "code as backend": Mutation(resealed(backend="os:system"), "'os:system'"),
    "an unknown backend": Mutation(resealed(backend="tvm"), "'tvm'"),
    "a backend of another format": Mutation(resealed(backend="aoti"), "aoti"),
    "a backend that opens nothing": Mutation(resealed(backend="eager"), "eager"),
    "three hundred dimensions": Mutation(with_program(inputs=(Port("z", "float32", (2,) * 300, ""),)), "length <= 16"),
    "a sample of no frame": Mutation(with_sample(frames=0), "`int` >= 1"),
    "a limit above 1": Mutation(with_sample(limits={"stream/video": 1e9}), "`float` <= 1"),
    "another torch": Mutation(require("torch", "is", "1.0.0"), "torch: expected 1.0.0", "host-mismatch"),
    "a later runtime": Mutation(require("onnxruntime", "at least", "99.0"), "99.0", "host-mismatch"),
    "another CPU": Mutation(require("cpu flags", "has", "avx2 sve9"), "cpu flags: expected sve9", "host-mismatch"),
    "a GPU": Mutation(require("gpu", "is", "NVIDIA H200"), "gpu: expected NVIDIA H200", "host-mismatch"),
    "another architecture": Mutation(require("machine", "is", "sparc64"), "machine: expected sparc64", "host-mismatch"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_is_refused(folder: Path, name: str) -> None:
    mutation = MUTATIONS[name]
    mutation.change(folder)
    refused(folder, mutation.fact, code=mutation.code)


@pytest.mark.parametrize("name", ["0/stream/in/z", "0/stream/out/video"])
@pytest.mark.parametrize("how", ["empty", "longer", "integers"])
def test_a_sample_whose_tensors_do_not_fit(whole: Path, tmp_path: Path, name: str, how: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = copy(whole, tmp_path / "artifact")
    tensors = load_file(folder / SAMPLE)
    tensors[name] = {
        "empty": torch.zeros(0),
        "longer": torch.zeros(tensors[name].numel() + 1),
        "integers": torch.zeros(tensors[name].shape, dtype=torch.int32),
    }[how]
    save_file(tensors, folder / SAMPLE)
    reseal(folder)
    reader = Reader(folder, read_manifest(folder))
    with pytest.raises(BadArtifact) as error:
        reader.inputs(0, "stream", "cpu") if "/in/" in name else reader.outputs(0, "stream")
    assert error.value.code == "bad-artifact"
    assert name in str(error.value)


def test_a_mismatch_can_be_allowed_and_is_kept(whole: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path / "artifact")
    require("machine", "is", "sparc64")(folder)
    with pytest.warns(loader.MismatchWarning, match="machine: expected sparc64"):
        opened = load(folder, allow_mismatch=True)
    assert [one.partition(":")[0] for one in opened.mismatches] == ["machine"]


class TestZip:
    """A torch.export program whose archive was changed by an attacker, with a manifest that agrees with it."""

    @pytest.fixture(autouse=True)
    def _only_archives(self, folder: Path) -> None:
        if manifest_of(folder).artifact != "torch.export":
            pytest.skip("is about archives")

    def add(self, folder: Path, name: str, data: bytes = b"x", **options: int) -> None:
        with zipfile.ZipFile(program(folder), "a") as archive:
            archive.writestr(name, data, **options)
        reseal(folder)

    def replace(self, folder: Path, ending: str, old: bytes, new: bytes) -> None:
        """Change a member, or the bytes of one."""
        path = program(folder)
        made = path.with_suffix(".new")
        with zipfile.ZipFile(path) as before, zipfile.ZipFile(made, "w") as after:
            for member in before.infolist():
                data = before.read(member)
                if member.filename.endswith(ending):
                    assert old in data
                    data = data.replace(old, new, 1)
                after.writestr(member, data)
        shutil.move(made, path)
        reseal(folder)

    @pytest.mark.parametrize(
        "name",
        [
            *("../outside", "/etc/cron.d/x", "stream/../../x", "a\\..\\b", "stream/extra", "other/byteorder"),
            *("version", "serialized_exported_program.json", "serialized_state_dict.pt"),  # the layout before torch 2.8
            *("stream/data/weights/model.pt", "stream/data/constants/opaque_obj_0", "stream/data/weights/x.pkl"),
        ],
    )
    def test_a_member_that_no_program_has(self, folder: Path, name: str) -> None:
        self.add(folder, name, b"\x80\x04.")
        refused(folder, "export never writes")

    @pytest.mark.parametrize("name", ["stream/data/sample_inputs/MODEL.PT", "stream/byteorder"])
    def test_a_name_twice_but_for_its_case(self, folder: Path, name: str) -> None:
        with pytest.warns(UserWarning, match="Duplicate name") if name.islower() else contextlib.nullcontext():
            self.add(folder, name, b"\x80\x04.")
        refused(folder, "same name")

    def test_an_object_of_a_class(self, folder: Path) -> None:
        self.add(folder, "stream/data/constants/custom_obj_0")
        refused(folder, "custom_obj_0")

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b'"use_pickle": false', b'"use_pickle": true'),
            (b'"use_pickle": false', b'"used_pickle": false'),
            (b'"path_name": "weight_0"', b'"path_name": "opaque_obj_/y"'),
        ],
    )
    def test_a_weight_said_to_be_pickled(self, folder: Path, old: bytes, new: bytes) -> None:
        self.replace(folder, "_weights_config.json", old, new)
        refused(folder, "weights_config.json", "pickle")

    def test_a_size_that_is_evaluated(self, folder: Path) -> None:
        code = b'{"as_expr": {"expr_str": "__import__(\'os\').system(\'touch pwned\')", "hint": null}}'
        self.replace(folder, "model.json", b'{"as_int": 1}', code)
        refused(folder, "expression")

    @pytest.mark.parametrize("target", [b"torch.ops.aten.from_file.default", b"torch.os.system", b"builtins.eval"])
    def test_a_call_that_is_no_operator(self, folder: Path, target: bytes) -> None:
        self.replace(folder, "model.json", b'"target": "torch.ops.aten.cat.default"', b'"target": "' + target + b'"')
        refused(folder, target.decode())

    def test_two_directories(self, folder: Path) -> None:
        """Python reads the directory that lies before the end record, torch the one that the record names."""
        path = program(folder)
        data = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            directory = data[archive.start_dir :]
        path.write_bytes(data + directory)
        reseal(folder)
        refused(folder, "archive")

    def test_a_bomb(self, folder: Path) -> None:
        self.add(folder, "stream/data/weights/weight_99", bytes(64 << 20), compress_type=zipfile.ZIP_DEFLATED)
        refused(folder, "weight_99", "compressed")

    def test_no_archive(self, folder: Path) -> None:
        program(folder).write_bytes(b"no archive")
        reseal(folder)
        refused(folder, "archive")


class TestExternalData:
    """An ONNX model whose weights are said to lie elsewhere (CVE-2022-25882, CVE-2024-27318)."""

    @pytest.fixture(autouse=True)
    def _only_onnx(self, folder: Path) -> None:
        if manifest_of(folder).artifact != "onnx":
            pytest.skip("is about ONNX")

    def point(self, folder: Path, key: str, value: str) -> None:
        import onnx

        path = program(folder)
        model = onnx.load(str(path), load_external_data=False)
        weights = [tensor for tensor in model.graph.initializer if tensor.external_data]
        assert weights, "the toy's weights lie outside"
        next(entry for entry in weights[0].external_data if entry.key == key).value = value
        onnx.save(model, str(path))
        reseal(folder)

    @pytest.mark.parametrize("place", ["/etc/passwd", "../outside", "weights.data/../../x", "other.data"])
    def test_in_another_file(self, folder: Path, place: str) -> None:
        self.point(folder, "location", place)
        refused(folder, f"'{place}'")

    @pytest.mark.parametrize(("key", "value"), [("offset", "99999999"), ("length", "99999999999"), ("offset", "-8")])
    def test_beyond_the_file(self, folder: Path, key: str, value: str) -> None:
        self.point(folder, key, value)
        refused(folder, value.removeprefix("-"), "weights.data")

    def test_behind_another_of_its_name(self, folder: Path) -> None:
        import onnx

        path = program(folder)
        model = onnx.load(str(path), load_external_data=False)
        honest = next(tensor for tensor in model.graph.initializer if tensor.external_data)
        hostile = type(honest)()
        hostile.CopyFrom(honest)
        next(entry for entry in hostile.external_data if entry.key == "location").value = "../secret"
        model.graph.initializer.insert(0, hostile)
        onnx.save(model, str(path))
        reseal(folder)
        refused(folder, "'../secret'")

    def test_at_no_place(self, folder: Path) -> None:
        self.point(folder, "offset", "here")
        refused(folder, "'here'")

    def test_no_model(self, folder: Path) -> None:
        program(folder).write_bytes(b"\xff" * 100)
        reseal(folder)
        refused(folder, "ONNX")


class TestIr:
    """An OpenVINO IR whose XML reads more than its weights."""

    @pytest.fixture(autouse=True)
    def _only_ir(self, folder: Path) -> None:
        if manifest_of(folder).artifact != "openvino":
            pytest.skip("is about OpenVINO's IR")

    def edit(self, folder: Path, old: str, new: str) -> None:
        path = program(folder)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        reseal(folder)

    def test_an_entity(self, folder: Path) -> None:
        entity = '<!DOCTYPE net [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        self.edit(folder, '<?xml version="1.0"?>', f'<?xml version="1.0"?>{entity}')
        refused(folder, "XML entities")

    def test_weights_beyond_the_file(self, folder: Path) -> None:
        self.edit(folder, 'offset="0"', 'offset="99999999"')
        refused(folder, "byte 1000000", "stream.bin")

    def test_weights_that_are_gone(self, folder: Path) -> None:
        program(folder).with_suffix(".bin").unlink()
        reseal(folder)
        refused(folder, "stream.bin")

    def test_no_ir(self, folder: Path) -> None:
        program(folder).write_text("<html></html>")
        reseal(folder)
        refused(folder, "OpenVINO IR")
