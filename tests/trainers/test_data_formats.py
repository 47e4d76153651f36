"""The task data with every format: one contract over tiny files that each format's own library writes."""

import gzip
import io
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from trainers.data import archive, table_cache, table_files
from trainers.data.data_source import formats
from trainers.data.formats.cifar_pickles import read as read_pickles
from trainers.data.table_task import TableTask
from trainers.engine.packs.pack import Pack
from trainers.errors import MissingDataError, SpecError
from trainers.tasks import data
from trainers.trial.document import parse as parse_trial

h5py = pytest.importorskip("h5py")
Image = pytest.importorskip("PIL.Image")

EXAMPLES = 40
GENERATOR = np.random.default_rng(0)
LABELS = np.arange(EXAMPLES) % 3 + 1
PEOPLE = np.array(["ann", "bob", "cyd", "dan"])[np.arange(EXAMPLES) % 4]  # each trains and tests
VECTORS = np.round(GENERATOR.standard_normal((EXAMPLES, 2)) + LABELS[:, None], 3)
GREY = GENERATOR.integers(0, 256, (EXAMPLES, 1, 4, 5), dtype=np.uint8)
COLOUR = GENERATOR.integers(0, 256, (EXAMPLES, 3, 32, 32), dtype=np.uint8)
TESTED = slice(30, None)
EVERY, TRAINED = slice(None), slice(0, 30)
TABLE = {"a": VECTORS[:, 0], "b": VECTORS[:, 1], "label": LABELS, "client": PEOPLE}


def table(rows: slice = EVERY, nested: bool = False) -> pa.Table:
    columns = {name: pa.array(column[rows]) for name, column in TABLE.items()}
    if nested:
        columns = {"x": pa.array(VECTORS[rows].tolist()), **{name: columns[name] for name in ("label", "client")}}
    return pa.table(columns)


def text(rows: slice = EVERY, separator: str = ",") -> bytes:
    file = io.BytesIO()
    csv.write_csv(table(rows), file, csv.WriteOptions(delimiter=separator))
    return file.getvalue()


def lines(rows: slice = EVERY) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table(rows, nested=True).to_pylist()).encode()


def write_table(write: Callable[[pa.Table, str], object], ending: str) -> Callable[[Path], None]:
    def written(path: Path) -> None:
        path.mkdir()
        write(table(TRAINED, nested=True), str(path / f"train-0{ending}"))
        write(table(TESTED, nested=True), str(path / f"test-0{ending}"))

    return written


def stream(data: pa.Table, path: str) -> None:
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, data.schema) as writer:
        writer.write_table(data, max_chunksize=7)


def saved_to_disk(path: Path) -> None:
    """As DatasetDict.save_to_disk writes it."""
    for side, rows in (("train", TRAINED), ("test", TESTED)):
        (path / side).mkdir(parents=True)
        stream(table(rows, nested=True), str(path / side / "data-00000-of-00001.arrow"))
        (path / side / "state.json").write_text(json.dumps({"_data_files": ["data-00000-of-00001.arrow"]}))
        (path / side / "dataset_info.json").write_text("{}")
    (path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(path: Path) -> None:
    path.mkdir()
    for side, rows in (("train", TRAINED), ("t10k", TESTED)):
        (path / f"{side}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(GREY[rows, 0])))
        (path / f"{side}-labels-idx1-ubyte").write_bytes(idx(LABELS[rows]))


def write_pickles(path: Path) -> None:
    path.mkdir()
    for name, rows in (("data_batch_1", slice(0, 20)), ("data_batch_2", slice(20, 30)), ("test_batch", TESTED)):
        batch = {b"data": COLOUR[rows].reshape(-1, 3072), b"labels": LABELS[rows].tolist(), b"batch_label": b"one"}
        (path / name).write_bytes(pickle.dumps(batch, protocol=2))
    (path / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a"]}))


def write_hdf5(path: Path) -> None:
    path.mkdir()
    for side, rows in (("train", TRAINED), ("test", TESTED)):
        with h5py.File(path / f"fed_cifar_{side}.h5", "w") as file:
            for person in np.unique(PEOPLE[rows]).tolist():
                mine = PEOPLE[rows] == person
                group = file.create_group(f"examples/{person}")
                group["image"] = COLOUR[rows][mine].transpose(0, 2, 3, 1)
                group["label"] = LABELS[rows][mine]


def write_images(path: Path) -> None:
    for side, rows in (("train", TRAINED), ("test", TESTED)):
        for number in range(EXAMPLES)[rows]:
            folder = path / side / str(PEOPLE[number]) / f"class {LABELS[number]}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(GREY[number, 0]).save(folder / f"{number:02}.png")


def write_leaf(path: Path) -> None:
    for side, rows in (("train", TRAINED), ("test", TESTED)):
        (path / side).mkdir(parents=True)
        people = np.unique(PEOPLE[rows]).tolist()
        users = {name: PEOPLE[rows] == name for name in people}
        content = {
            name: {"x": VECTORS[rows][mine].tolist(), "y": LABELS[rows][mine].tolist()} for name, mine in users.items()
        }
        (path / side / "data.json").write_text(json.dumps({"user_data": content}))


def write_npz(path: Path) -> None:
    ended = {f"{name}_test": array[TESTED] for name, array in (("x", VECTORS), ("y", LABELS), ("client", PEOPLE))}
    with path.open("wb") as file:
        np.savez(file, x=VECTORS[TRAINED], y=LABELS[TRAINED], client=PEOPLE[TRAINED], **ended)


def write_text(ending: str, separator: str = ",") -> Callable[[Path], None]:
    def written(path: Path) -> None:
        path.mkdir()
        for side, rows in (("train", TRAINED), ("test", TESTED)):
            content = lines(rows) if "json" in ending else text(rows, separator)
            (path / f"{side}{ending}").write_bytes(gzip.compress(content) if ending.endswith("gz") else content)

    return written


IID = {"partition": "iid", "clients": 4}
SEPARATE = {"test": {"inputs": "x_test", "targets": "y_test", "client": "client_test"}}
KINDS: Mapping[str, tuple[str, Callable[[Path], None], Any, dict[str, Any]]] = {
    # format, what writes it, its inputs, keys of the task
    "csv": ("csv", write_text(".csv"), VECTORS, {}),
    "csv-semicolon": ("csv", write_text(".csv", ";"), VECTORS, {}),
    "tsv-gz": ("csv", write_text(".tsv.gz", "\t"), VECTORS, {}),
    "jsonl": ("jsonl", write_text(".jsonl"), VECTORS, {}),
    "jsonl-gz": ("jsonl", write_text(".jsonl.gz"), VECTORS, {}),
    "parquet": ("parquet", write_table(parquet.write_table, ".parquet"), VECTORS, {}),
    "feather": ("arrow", write_table(feather.write_feather, ".feather"), VECTORS, {}),
    "datasets": ("arrow", saved_to_disk, VECTORS, {}),
    "idx": ("idx", write_idx, GREY, IID),
    "cifar": ("cifar_pickles", write_pickles, COLOUR, IID),
    "hdf5": ("hdf5", write_hdf5, COLOUR, {}),
    "images": ("image_folder", write_images, GREY, {}),
    "leaf": ("leaf", write_leaf, VECTORS, {}),
    "npz": ("npz", write_npz, VECTORS, SEPARATE),
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a data set of a kind."""
    monkeypatch.chdir(tmp_path)

    def written(kind: str) -> Path:
        path = tmp_path / ("own.npz" if kind == "npz" else "own")
        KINDS[kind][1](path)
        return path

    return written


def parsed(path: Any, **document: Any) -> TableTask:
    return data.parse({"name": "data", "path": str(path), **document}, "task")


def bag(inputs: Any, labels: Any) -> list[Any]:
    rows = np.asarray(inputs, np.float64).reshape(len(labels), -1).tolist()
    return sorted(zip(rows, np.asarray(labels).tolist(), strict=True))


def test_every_format_is_tried() -> None:
    assert {kind[0] for kind in KINDS.values()} == set(formats())


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_reads_and_trains(kind: str, own: Callable[[str], Path]) -> None:
    name, _, inputs, keys = KINDS[kind]
    path = own(kind)
    settings = parsed(path, **keys)
    assert settings.document["format"] == name
    assert settings.shape == inputs.shape[1:]
    labels = [f"class {label}" for label in (1, 2, 3)] if kind == "images" else [1, 2, 3]
    assert settings.document["labels"] == labels
    assert any("class numbers are in the order of the labels" in note for note in settings.notes)
    problem = data.build(settings, "float64")
    assert bag(problem.train.inputs, problem.train.targets) == bag(inputs[TRAINED], LABELS[TRAINED] - 1)
    assert problem.test is not None
    assert bag(problem.test.inputs, problem.test.targets) == bag(inputs[TESTED], LABELS[TESTED] - 1)
    assert settings.clients == 4
    assert len(settings.test) == (1 if keys is IID else 4)
    again = data.parse(json.loads(json.dumps(settings.document)), "task")
    assert again.document == settings.document
    scaled = {**settings.document, "scale": "standardise"}
    trial = {
        "task": scaled,
        "method": {"name": "fedavg", "client_lr": 0.05, "server_lr": 1.0, "local_steps": 3},
        "rounds": 3,
        "clients_per_round": 2,
        "eval_every": 1,
    }
    rows = Pack.from_spec(parse_trial(trial), device="cpu").advance()
    assert rows[-1]["train_loss"] < rows[1]["train_loss"]
    assert np.isfinite(rows[-1]["test_loss"])
    moved = data.build(data.parse(scaled, "task"), "float64").train.inputs
    axes = {2: (0,), 4: (0, 2, 3)}[inputs.ndim]
    np.testing.assert_allclose(moved.mean(axes), 0, atol=1e-12)
    np.testing.assert_allclose(moved.std(axes), 1, atol=1e-12)


def refusal(path: Any, **document: Any) -> str:
    """The error; "" without one."""
    try:
        parsed(path, **document)
    except SpecError as error:
        return str(error)
    return ""


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


@pytest.mark.parametrize("kind", ["parquet", "feather", "datasets"])
def test_large_tables_are_read_chunk_by_chunk(
    kind: str, own: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own(kind)
    whole = data.build(parsed(path), "float64")
    table_cache._load.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table_files, "_LARGE", 0)
    read: list[Sequence[str]] = []

    def noted(side: Any, names: Any, path: Path, place: str, wanted: Sequence[str]) -> Any:
        read.append(wanted)
        return original(side, names, path, place, wanted)

    files = sys.modules[f"trainers.data.formats.{KINDS[kind][0]}"]._FILES
    original = files._whole
    monkeypatch.setattr(files, "_whole", noted)
    streamed = data.build(parsed(path), "float64")
    assert read == [["client"], ["client"]], "strings only"
    for side in ("train", "test"):
        for name in ("inputs", "targets", "offsets"):
            np.testing.assert_array_equal(getattr(getattr(whole, side), name), getattr(getattr(streamed, side), name))
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_a_missing_value_of_a_large_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_LARGE", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    columns = pa.table({"x": [1.0] * 70_000 + [None], "label": [0, 1] * 35_000 + [0], "client": [1] * 70_001})
    parquet.write_table(columns, tmp_path / "own.parquet")
    message = refusal(tmp_path / "own.parquet", inputs=["x"])
    assert 'column "x" must have a value in every row, got none in 1 of 70001 rows, first in row 70000' in message


def resident(*, begin: bool = False) -> int:
    """Peak of this process's memory since `begin`, in KiB.

    Not by tracemalloc: in Python 3.11, to stop it beside the thread by which Arrow reads ahead ends the process.
    """
    if begin:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("kind", [*KINDS, "parquet streamed", "feather streamed", "datasets streamed", "npz streamed"])
def test_a_damaged_file_is_one_line_and_bounded_memory(
    kind: str, own: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are cut, or bytes changed; what is read all the same is read in no more memory than the whole file."""
    kind, _, streamed = kind.partition(" ")
    if streamed:
        monkeypatch.setattr(table_files, "_LARGE", 0)
        monkeypatch.setattr(archive, "_LARGE", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name, _, _, keys = KINDS[kind]
    path = own(kind)
    settings = parsed(path, **keys)
    generator, refused = np.random.default_rng(1), 0
    files = [file for file in _files(path) if file in settings.source.format.files(settings.source.path)]
    for number in range(18):
        file = files[number % len(files)]
        whole = file.read_bytes()
        place = int(generator.integers(len(whole)) if number % 3 else generator.integers(min(64, len(whole))))
        changed = bytes(generator.integers(0, 256, 4, dtype=np.uint8))
        file.write_bytes(whole[:place] if number % 2 else whole[:place] + changed + whole[place + 4 :])
        os.utime(file, ns=(number, number))
        before = resident(begin=True)
        message = refusal(path, format=name, **keys)
        assert resident() - before < 32_000, "a length in the file is believed"
        refused += bool(message)
        assert message.startswith("task") or not message
        assert "\n" not in message
        assert len(message) < 1000, message
        file.write_bytes(whole)
    assert refused >= 4


class _Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps(_Runs(), protocol=2), "posix.system must not be in it: only numbers and arrays are read"),
        (pickle.dumps({b"data": np.array([{}])}, protocol=2), "an array must hold numbers"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "a place is out of range"),
        (pickle.dumps([1], protocol=2), "must hold a mapping, as CIFAR's batches do"),
        (pickle.dumps({b"data": np.zeros((2, 5), np.uint8)}, protocol=2), "must hold data, bytes of shape"),
    ],
)
def test_nothing_in_a_pickle_is_executed(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(SpecError, match=r"^task\.path: data_batch_1: ") as caught:
        read_pickles(tmp_path, (), "task.path")
    assert reason in str(caught.value)
    assert not Path("ran").exists()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_arrays_of_all_protocols_are_read(tmp_path: Path, order: Any, protocol: int) -> None:
    images = np.asarray(COLOUR.reshape(EXAMPLES, -1), order=order)
    batch = {b"data": images, b"fine_labels": LABELS.astype(">i4"), "coarse_labels": [0] * EXAMPLES}
    (tmp_path / "train").write_bytes(pickle.dumps(batch, protocol=protocol))
    columns = read_pickles(tmp_path, (), "task.path")
    assert np.array_equal(columns.array("image", "task"), COLOUR)
    assert columns.array("fine_label", "task").tolist() == LABELS.tolist()
    assert columns.names == ["image", "fine_label", "coarse_label"]


@pytest.mark.parametrize(("kind", "module"), [("hdf5", "h5py"), ("images", "PIL.Image")])
def test_a_missing_library_names_the_extra(
    kind: str, module: str, own: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own(kind)

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDataError, match=rf"need {module[:4].strip('.')}\w*: pip install 'driftline\[data\]'$"):
        parsed(path, format=KINDS[kind][0])


@pytest.mark.parametrize("place", ["examples", "examples/ann", "examples/ann/x"])
def test_hdf5_reads_no_other_file(place: str, tmp_path: Path) -> None:
    for name in ("own", "other"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["examples/ann/x"] = np.arange(3)
            file["examples/ann/label"] = [0, 1, 0]
    with h5py.File(tmp_path / "own.h5", "a") as file:
        del file[place]
        file[place] = h5py.ExternalLink(str(tmp_path / "other.h5"), place)
    assert "must be in the file itself" in refusal(tmp_path / "own.h5")


def test_a_small_table_takes_little_memory(own: Callable[[str], Path]) -> None:
    """RLIMIT_DATA of a service's check counts what an allocator reserves."""
    parsed(own("parquet"))
    assert pa.default_memory_pool().backend_name == "system"


def test_an_image_of_another_size_is_named(own: Callable[[str], Path]) -> None:
    path = own("images")
    Image.new("L", (9, 9)).save(path / "train/ann/class 1/99.png")
    assert "must hold images of one size, 5 x 4 as ann/class 1/00.png has, got 9 x 9 in " in refusal(path)
    (path / "train/ann/class 1/99.png").unlink()
    Image.new("L", (5, 4)).save(path / "train/ann/odd.png")
    assert "must all be in CLASS/image.png or all in CLIENT/CLASS/image.png, got train/ann/odd.png" in refusal(path)


RAGGED: dict[str, tuple[str, str]] = {
    "own.jsonl": (
        '{"x": [1, 2], "y": 0, "client": 1}\n{"x": [1], "y": 1, "client": 2}\n',
        'task.inputs: column "x" must have lists of one length, got 2 values in row 0 and 1 in row 1',
    ),
    "own.csv": ("x,y,client\n1,0,1\n2,1\n", "Expected 3 columns, got 2"),
}


@pytest.mark.parametrize("name", RAGGED)
def test_ragged_rows_are_named(name: str, tmp_path: Path) -> None:
    content, message = RAGGED[name]
    (tmp_path / name).write_text(content)
    assert message in refusal(tmp_path / name)


def test_images_as_datasets_stores_them(tmp_path: Path) -> None:
    def png(pixels: Any) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        return file.getvalue()

    images = [{"bytes": png(image.transpose(1, 2, 0)), "path": None} for image in COLOUR[:6]]
    parquet.write_table(pa.table({"img": images, "label": [0, 1] * 3}), tmp_path / "train.parquet")
    settings = parsed(tmp_path / "train.parquet", partition="iid", clients=1, test_fraction=0)
    inputs = data.build(settings, "float32").train.inputs
    assert np.array_equal(np.sort(inputs, axis=0), np.sort(COLOUR[:6], axis=0))
