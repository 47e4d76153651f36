"""Data at a URL: copied once into the cache, read as a local file, refused in one line where that cannot be."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.web_server import serving
from trainers import disk_cache
from trainers.data import remote
from trainers.data.table_task import TableTask
from trainers.data_description import describe
from trainers.errors import ChangedDataError, MissingDataError, SpecError
from trainers.tasks import data
from trainers.tasks import text as text_task


def text(count: int) -> bytes:
    return "\n".join(["a,label,client", *(f"{n},{n % 2},c{n % 3}" for n in range(count))]).encode()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Stores files in fsspec's memory://, and counts what is copied."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote._copied.cache_clear()
    files = fsspec.filesystem("memory")

    def store(**content: bytes) -> None:
        for name, some in content.items():
            files.pipe(f"/bucket/{name.replace('__', '/')}.csv", some)

    yield store
    files.rm("/", recursive=True)
    remote._copied.cache_clear()


def parsed(url: str, **document: Any) -> TableTask:
    return data.parse({"name": "data", "path": url, "inputs": ["a"], **document}, "task")


def test_a_file_is_copied_once(memory: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    memory(own=text(30))
    settings = parsed("memory://bucket/own.csv")
    assert settings.clients == 3
    assert settings.document["path"] == "memory://bucket/own.csv"
    monkeypatch.setattr(remote, "_copy", lambda *_: pytest.fail("copied again"))
    for new_process in (False, True):
        if new_process:
            remote._copied.cache_clear()
        assert parsed("memory://bucket/own.csv").sha256 == settings.sha256
        assert data.build(settings, "float64").train.inputs.shape == (24, 1)
    assert describe("memory://bucket/own.csv", {}).format == "csv"


def test_another_version_is_another_copy(memory: Callable[..., None]) -> None:
    memory(own=text(30))
    first = parsed("memory://bucket/own.csv")
    memory(own=text(60))
    assert parsed("memory://bucket/own.csv").sha256 == first.sha256, "a process stays with its version"
    remote._copied.cache_clear()
    again = parsed("memory://bucket/own.csv")
    assert again.sha256 != first.sha256
    with pytest.raises(SpecError, match=f"SHA-256 {first.sha256}, got {again.sha256}: they have changed"):
        parsed("memory://bucket/own.csv", sha256=first.sha256)


def test_texts_may_be_at_a_url_too(memory: Callable[..., None]) -> None:
    memory(own=b"a rose is a rose is a rose\n" * 20)
    document = {"name": "text", "path": "memory://bucket/own.csv", "context": 8, "partition": "iid", "clients": 2}
    first = text_task.parse(document, "task").document["sha256"]
    assert text_task.stamp(document) is not None
    memory(own=b"another rose\n" * 20)
    remote._copied.cache_clear()
    with pytest.raises(ChangedDataError, match=rf"^task.path must lead to data with the SHA-256 {first}, got "):
        text_task.parse({**document, "sha256": first}, "task")


def test_a_folder_and_a_file_of_test_examples(memory: Callable[..., None]) -> None:
    memory(own__train__a=text(30), own__test__b=text(12), other=text(9))
    assert sum(map(len, parsed("memory://bucket/own").test)) == 12
    held_out = parsed("memory://bucket/own/train/a.csv", test={"path": "memory://bucket/other.csv"})
    assert sum(map(len, held_out.test)) == 9


def test_a_copy_that_was_removed_or_cut_is_made_again(memory: Callable[..., None], tmp_path: Path) -> None:
    memory(own=text(30))
    sha256 = parsed("memory://bucket/own.csv").sha256
    (copy,) = (tmp_path / "cache").rglob("own.csv")
    copy.write_bytes(copy.read_bytes()[:40])
    remote._copied.cache_clear()
    assert parsed("memory://bucket/own.csv").sha256 == sha256
    copy.unlink()
    assert parsed("memory://bucket/own.csv").sha256 == sha256


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://bucket/none.csv", 'cannot read "memory://bucket/none.csv" (FileNotFoundError: '),
        ("nonsense://bucket/own.csv", 'cannot read "nonsense://bucket/own.csv" (ValueError: Protocol not known'),
        ("https://ann:secret@a.org/own.csv", 'must be a URL without a password, got one for "https://a.org/own.csv"'),
    ],
)
def test_every_failure_is_one_line(url: str, message: str, memory: Callable[..., None]) -> None:
    with pytest.raises(SpecError) as caught:
        parsed(url)
    assert str(caught.value).startswith("task.path")
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_a_cache_it_says_what_to_do(memory: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    memory(own=text(30))
    monkeypatch.setenv(disk_cache.VARIABLE, "0")
    with pytest.raises(MissingDataError, match="set XDG_CACHE_HOME to one that can be written to"):
        parsed("memory://bucket/own.csv")


def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    class Hostile:
        """Lists a file above the folder."""

        def info(self, _: str) -> dict[str, str]:
            return {"type": "directory"}

        def find(self, there: str) -> list[str]:
            return [f"{there}/../../out.csv"]

    with pytest.raises(OSError, match="leads out of the folder"):
        remote._copy(Hostile(), "bucket/own", tmp_path / "own")


def test_a_copy_is_below_its_entry_whatever_its_name(
    memory: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fsspec.filesystem("memory")
    for name in ("entry.json", "sub/own.csv"):
        files.pipe(f"/bucket/{name}", name.encode())
    assert remote.local_copy("memory://bucket/entry.json", "task.path").read_text() == "entry.json"
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda _: (Up(), "bucket/sub/.."))
    copy = remote.local_copy("memory://bucket/sub/..", "task.path")
    assert (copy / "sub" / "own.csv").read_text() == "sub/own.csv"
    entries = tmp_path / "cache" / "driftline" / "data"
    names = {entry.name.removesuffix(".lock") for entry in entries.iterdir()}
    assert len(names) == 2
    assert all(len(name) == 64 for name in names)


class Up:
    """A store in which `..` is a name that leads up, as on a disk."""

    def ukey(self, _: str) -> str:
        return ""

    def info(self, there: str) -> dict[str, str]:
        return {"type": "directory"}

    def find(self, there: str) -> list[str]:
        return [f"{there}/sub/own.csv"]

    def get_file(self, there: str, here: str) -> None:
        Path(here).write_text(there.removeprefix("bucket/sub/../"))


def test_a_web_server(memory: Callable[..., None]) -> None:
    with serving() as server:
        server.put("/own.csv", text(30))
        assert parsed(server.url("/own.csv")).clients == 3
