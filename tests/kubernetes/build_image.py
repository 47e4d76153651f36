"""Builds the images of the Kubernetes tests without Docker and without a registry.

    python tests/kubernetes/build_image.py FOLDER [driftline] [postgres] [compass]

makes OCI archives under FOLDER: driftline.tar (localhost/driftline:test), postgres.tar (localhost/postgres:test) and
compass.tar (localhost/driftline-compass:test, derived from driftline.tar as examples/task-package/Dockerfile says; it
holds only what driftline.tar lacks, so load that first). All three unless some are named. Needs root, debootstrap,
buildah and a Debian mirror; wheels come from wherever pip gets them here. All that is made lies under FOLDER.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BASE = "localhost/python:3.11-slim"
NAMES = {
    "driftline": "localhost/driftline:test",
    "postgres": "localhost/postgres:test",
    "compass": "localhost/driftline-compass:test",
}
CONTEXT = (
    "driftline",
    "examples",
    "service",
    "trainers",
    "search_spaces",
    "pyproject.toml",
    "setup.py",
    "constraints.txt",
    "README.md",
    "LICENSE",
)
PYTHON = sys.version_info[:2]
TOOLS = ("debootstrap", "buildah")
BASE_PACKAGES = "python3,python3-venv,ca-certificates,wget"
UNUSED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")


def say(text: str) -> None:
    print(f"{time.monotonic() - START:6.0f} s  {text}", file=sys.stderr, flush=True)


START = time.monotonic()


def run(*argv: str, cwd: Path | None = None) -> None:
    """Runs a command; what it said is shown when it fails."""
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-8000:]}")


class Builder:
    """Buildah with all its files under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = folder / "context"
        os.environ.update(BUILDAH_ISOLATION="chroot", STORAGE_DRIVER="vfs")

    def buildah(self, *argv: str, cwd: Path | None = None) -> None:
        run("buildah", "--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run"), *argv, cwd=cwd)

    def bud(self, tag: str, dockerfile: Path, context: Path, **arguments: str) -> None:
        options = [option for name, value in arguments.items() for option in ("--build-arg", f"{name}={value}")]
        self.buildah("bud", "-q", "--disable-compression", "-t", tag, "-f", str(dockerfile), *options, str(context))

    def archive(self, name: str, dockerfile: Path, context: Path, **arguments: str) -> None:
        """Builds right into an archive, uncompressed: packing 1.5 GB takes minutes, and `buildah push` always packs."""
        archive = self.folder / f"{name}.tar"
        archive.unlink(missing_ok=True)
        self.bud(f"oci-archive:{archive}:{NAMES[name]}", dockerfile, context, **arguments)
        say(f"{archive.name}: {archive.stat().st_size / 1e6:.0f} MB")

    def base(self) -> None:
        root = self.folder / "base"
        root.mkdir()
        run("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", "bookworm", str(root / "rootfs"))
        for path in UNUSED:
            shutil.rmtree(root / "rootfs" / path, ignore_errors=True)
            (root / "rootfs" / path).mkdir()
        empty = [f"--exclude=./{name}/*" for name in ("proc", "sys", "dev")]
        run("tar", "-C", str(root / "rootfs"), "-cf", str(root / "rootfs.tar"), *empty, ".")
        shutil.rmtree(root / "rootfs")
        self.bud(BASE, HERE / "base.Dockerfile", root)
        shutil.rmtree(root)
        say("the base is there")

    def wheelhouse(self) -> None:
        """The project's files, as Docker would send them, with build/wheelhouse."""
        self.context.mkdir()
        for name in (*CONTEXT, ".dockerignore"):
            source, target = ROOT / name, self.context / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        wheels = self.context / "build" / "wheelhouse"
        what = [".[cluster,data]", "torch", "setuptools"]
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "-c", "constraints.txt", "-w", str(wheels)]
        run(*pip, *what, cwd=self.context)
        for own in wheels.glob("driftline-*"):
            own.unlink()  # built inside, from the source
        say(f"{len(list(wheels.iterdir()))} wheels are there")

    def driftline(self) -> None:
        self.archive("driftline", ROOT / "Dockerfile", self.context, BASE=BASE, WHEELHOUSE="build/wheelhouse")

    def postgres(self) -> None:
        self.archive("postgres", HERE / "postgres.Dockerfile", HERE, BASE=BASE)

    def compass(self) -> None:
        """The example of an image with a task and a model of one's own, without the layers that driftline.tar has."""
        base = self.folder / "driftline.tar"
        self.buildah("pull", "-q", f"oci-archive:{base}:{NAMES['driftline']}")
        package = ROOT / "examples" / "task-package"
        layout = self.folder / "layout"
        with tarfile.open(base) as archive:  # what lies there is not written again
            there = [name for name in archive.getnames() if "blobs/sha256/" in name]
            archive.extractall(layout, there, filter="data")
        self.bud(f"oci:{layout}:{NAMES['compass']}", package / "Dockerfile", package, BASE=NAMES["driftline"])
        with tarfile.open(self.folder / "compass.tar", "w") as thin:
            for path in sorted(layout.rglob("*")):
                if path.is_file() and (name := str(path.relative_to(layout))) not in there:
                    thin.add(path, name)
        shutil.rmtree(layout)
        say(f"compass.tar: {(self.folder / 'compass.tar').stat().st_size / 1e6:.1f} MB")


def build(folder: Path, names: list[str]) -> None:
    """Builds the named images and writes their archives into the folder."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid():
        raise SystemExit(f"building images needs root and {', '.join(TOOLS)}: apt-get install {' '.join(TOOLS)}")
    if PYTHON != (3, 11):
        raise SystemExit(f"wheels must be those of the base's Python 3.11, this is {sys.version.split()[0]}")
    folder.mkdir(parents=True, exist_ok=True)
    builder = Builder(folder.resolve())
    for part in ("base", "context", "storage", "run", "layout"):
        shutil.rmtree(builder.folder / part, ignore_errors=True)
    with ThreadPoolExecutor() as pool:
        wheels = pool.submit(builder.wheelhouse) if "driftline" in names else None
        if names != ["compass"]:
            builder.base()
        if "postgres" in names:
            builder.postgres()
        if wheels:
            wheels.result()
            builder.driftline()
            shutil.rmtree(builder.context)
        if "compass" in names:
            builder.compass()
    run("rm", "-rf", str(builder.folder / "storage"), str(builder.folder / "run"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], default=[])
    arguments = parser.parse_args()
    build(arguments.folder, arguments.names or list(NAMES))


if __name__ == "__main__":
    main()
