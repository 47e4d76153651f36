"""Arrow and Feather files (.arrow, .feather), and Hugging Face datasets saved to disk, which are folders of them.

A folder that `DatasetDict.save_to_disk` wrote has the folders train and test. Columns are numbers, strings, lists of
one length, or images as the library datasets stores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainers.data.table_files import TableFiles

__all__ = ["FOLDERS", "files", "has_test", "names", "read", "recognises"]

FOLDERS = True
_MAGIC = b"ARROW1"  # of a file; a stream has none


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow as pa

    with pa.OSFile(str(path)) as file:
        whole = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        yield pa.ipc.open_file(file) if whole else pa.ipc.open_stream(file)


def _names(path: Path) -> Sequence[str]:
    with _opened(path) as reader:
        return list(reader.schema.names)


def _table(path: Path, names: Sequence[str]) -> Any:
    with _opened(path) as reader:
        return reader.read_all().select(list(names))


def _chunks(path: Path, name: str) -> Iterator[Any]:
    with _opened(path) as reader:
        count = getattr(reader, "num_record_batches", None)  # of a file; a stream is iterated
        for batch in reader if count is None else map(reader.get_batch, range(count)):
            yield batch.column(name)


_FILES = TableFiles((".arrow", ".feather"), _names, _table, _chunks)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test
names = _FILES.names
read = _FILES.read
