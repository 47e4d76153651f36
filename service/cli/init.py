"""`driftline init`: writes one of the example studies that come with Driftline."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from driftline.errors import NotFound
from driftline.study.examples import examples
from service.cli.file_errors import cannot_write, file_exists
from service.cli.terminal import echo
from trainers import hint, shown
from trainers.own_files import put_new


def list_examples(*, as_json: bool) -> None:
    """Prints the name of every example and what it does."""
    summaries = {name: _summary(text) for name, text in examples().items()}
    if as_json:
        echo(json.dumps([{"name": name, "summary": summary} for name, summary in summaries.items()], indent=2))
        return
    for name, summary in summaries.items():
        echo(f"{name:<20}{summary}")


def write_example(name: str, file: Path) -> None:
    """Writes an example to a new file, and prints what to run next.

    Raises:
        Conflict: The file exists.
        InvalidSpec: The file cannot be written.
        NotFound: No example has this name.
    """
    known = examples()
    if name not in known:
        raise NotFound(f"no example {shown(name)}: {hint(name, known)}")
    path = shlex.quote(str(file))
    try:
        put_new(file, known[name].replace(f"examples/{name}.yaml", path).encode())
    except FileExistsError as error:
        raise file_exists(file) from error
    except OSError as error:
        raise cannot_write("FILE", file, error) from error
    echo(f"Wrote {file}. Check and run it:\n  driftline validate {path}\n  driftline run {path}")


def _summary(text: str) -> str:
    """The first sentence of the comment at the top, up to a colon."""
    comment = " ".join(line.lstrip("# ") for line in text.partition("\n#\n")[0].splitlines())
    return re.split(r"[.:](?:\s|$)", comment)[0]
