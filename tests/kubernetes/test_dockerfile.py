"""What the Dockerfile's builder does for each variant: its own shell script, run with a pip that only writes down."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from . import build_image
from .conftest import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PYTHON = """#!/bin/sh
if [ "$1" = -m ] && [ "$2" = venv ]; then mkdir -p "$3/bin" "$3/lib"; cp "$0" "$3/bin/python"; exit 0; fi
echo "PIP_NO_INDEX=${PIP_NO_INDEX:-} $*" >> LOG
"""


def script():
    """The builder's RUN command, without what is Docker's."""
    found = re.search(r"^RUN --mount=type=bind,target=/context \\\n(.*?)\n\n", DOCKERFILE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1].replace("\\\n", " ")


def built(folder: Path, **arguments: str) -> tuple[int, list[str], str]:
    """How the script ends, the calls of pip, and what it says; everything happens in a folder."""
    for name, value in (("/opt/driftline", "opt"), ("/tmp/source", "source")):
        assert name in DOCKERFILE
        (folder / value).parent.mkdir(exist_ok=True)
    context = folder / "context"
    context.mkdir()
    for name in build_image.CONTEXT:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, context / name)
    log = folder / "log"
    tools = folder / "tools"
    tools.mkdir()
    (tools / "python3").write_text(PYTHON.replace("LOG", str(log)))
    (tools / "python3").chmod(0o755)
    defaults = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE.split("\nFROM ")[1], re.MULTILINE))
    text = script()
    for name, value in (("/opt/driftline", "opt"), ("/tmp/source", "source"), ("/context", "context")):
        text = text.replace(name, str(folder / value))
    done = subprocess.run(
        ["sh", "-c", text],
        env={"PATH": f"{tools}:/usr/bin:/bin", **defaults, **arguments},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, log.read_text().splitlines() if log.exists() else [], done.stderr


def installs(calls):
    return [call for call in calls if " install " in call]


def test_the_cpu_variant_takes_torch_from_the_cpu_index(tmp_path):
    code, calls, said = built(tmp_path, VARIANT="cpu")
    assert (code, said) == (0, "")
    first, second = installs(calls)
    assert first.endswith("torch --index-url https://download.pytorch.org/whl/cpu")
    assert "--index-url" not in second
    assert all(f"-c {tmp_path}/context/constraints.txt" in call for call in (first, second))
    assert re.search(r" torch \S+source\[cluster,data\] *$", second)
    assert calls[-1].endswith("-m pip check")


def test_the_cuda_variant_takes_torch_from_the_usual_index(tmp_path):
    """Where PyTorch publishes its CUDA build for Linux, with NVIDIA's libraries as packages."""
    code, calls, said = built(tmp_path, VARIANT="cuda", EXTRA_PACKAGES="s3fs")
    assert (code, said) == (0, "")
    (only,) = installs(calls)
    assert "--index-url" not in only
    assert re.search(r" torch \S+source\[cluster,data\] s3fs$", only)
    pinned = re.search(r"^torch==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert "+" not in pinned, "a local version, such as +cpu, would keep the CUDA build out"
    assert not re.search(r"^nvidia|^triton", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
def test_given_wheels_are_the_only_source(tmp_path, variant):
    code, calls, _ = built(tmp_path, VARIANT=variant, WHEELHOUSE="build/wheelhouse")
    assert code == 0
    (only,) = installs(calls)
    assert only.startswith("PIP_NO_INDEX=1 ")


def test_another_variant_is_refused(tmp_path):
    code, calls, said = built(tmp_path, VARIANT="rocm")
    assert (code, calls) == (2, [])
    assert said == "VARIANT must be cpu or cuda, got rocm\n"


def test_the_image_says_what_it_needs_of_a_driver_and_leaves_the_gpus_to_others():
    environment = DOCKERFILE[DOCKERFILE.index("ENV PATH") :]
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in environment
    assert "NVIDIA_VISIBLE_DEVICES" not in environment
