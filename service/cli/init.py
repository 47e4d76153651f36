"""`driftline init`: writes one of the example studies that come with Driftline, or a study of a user's data."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from driftline.errors import NotFound
from driftline.study.examples import FIRST, examples
from service.cli.file_errors import cannot_write, file_exists
from service.cli.terminal import echo
from trainers import hint, shown
from trainers.own_files import put_new

if TYPE_CHECKING:
    from trainers.data_description import Description


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
    texts = examples()
    if name not in texts:
        raise NotFound(f"no example {shown(name)}: {hint(name, texts)}")
    _write(file, texts[name].replace(f"examples/{name}.yaml", shlex.quote(str(file))))


def write_own(data: str, summary: Description, file: Path) -> None:
    """Writes a study of a user's data to a new file, and prints what to run next.

    Args:
        data: The path of the data.
        summary: Description of the data.
        file: The file to write.

    Raises:
        Conflict: The file exists.
        InvalidSpec: The file cannot be written.
    """
    clients = len(summary.sizes)
    stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(data).resolve().name.partition(".")[0]).strip("-")
    facts = f"{summary.sizes.sum()} training examples of {clients} {'client' if clients == 1 else 'clients'}"
    keys = "".join(f"  {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in summary.task.items())
    text = examples()[FIRST]
    for pattern, new in (
        (r"on handwritten digits: a small study to start from", lambda _: "on your own data: a study to start from"),
        (r"examples/first\.yaml", lambda _: shlex.quote(str(file))),
        (r"name: first-study # .*", lambda _: f"name: {stem or 'own-data'}"),
        (
            r"# What is trained: (?:.*\n)+?task: .*\n",
            lambda _: (
                f"# What is trained: a model on {facts}. `driftline data describe` shows more,\n"
                f"# and `driftline tasks data` the keys.\ntask:\n{keys}"
            ),
        ),
        (r"clients_per_round: 10", lambda _: f"clients_per_round: {min(10, clients)}"),
        (r"batch_size: 20", lambda _: f"batch_size: {min(20, int(median(summary.sizes.tolist())))}"),
    ):
        text, count = re.subn(pattern, new, text)
        assert count, pattern
    if not summary.test:
        text = text.replace("quality: test_loss", "quality: train_loss")
    _write(file, text)


def _write(file: Path, text: str) -> None:
    path = shlex.quote(str(file))
    try:
        put_new(file, text.encode())
    except FileExistsError as error:
        raise file_exists(file) from error
    except OSError as error:
        raise cannot_write("FILE", file, error) from error
    echo(f"Wrote {file}. Check and run it:\n  driftline validate {path}\n  driftline run {path}")


def _summary(text: str) -> str:
    """The first sentence of the comment at the top, up to a colon."""
    comment = " ".join(line.lstrip("# ") for line in text.partition("\n#\n")[0].splitlines())
    return re.split(r"[.:](?:\s|$)", comment)[0]
