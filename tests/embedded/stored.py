"""Reads an output folder, also while another process works in it."""

from pathlib import Path

from driftline.wire.records import StudyRecord
from service.store.store import Store


def stored_study(folder: Path) -> StudyRecord:
    """The study of a folder."""
    store = Store(folder / "driftline.db")
    try:
        return store.studies.find()[0]
    finally:
        store.close()
