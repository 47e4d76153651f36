"""The example studies that come with Driftline."""

from __future__ import annotations

from pathlib import Path

FIRST = "first"
"""Name of the example to start from."""


def examples() -> dict[str, str]:
    """The text of every example study, by name; the one to start from comes first.

    ``Study.from_yaml(examples()["first"])`` is the study of ``driftline init``.
    """
    texts = _texts(_folder())
    return {name: texts[name] for name in sorted(texts, key=lambda name: (name != FIRST, name))}


def paper_texts() -> dict[str, str]:
    """The text of every preset of the papers, by name; see `driftline.study.papers`."""
    return _texts(_folder() / "papers")


def _folder() -> Path:
    package = Path(__file__).parents[1]  # setup.py puts them into the wheel; in a checkout they lie beside it
    return next(folder for folder in (package / "examples", package.parent / "examples") if folder.is_dir())


def _texts(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}
