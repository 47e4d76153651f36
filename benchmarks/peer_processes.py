"""The projects that benchmarks compare Driftline with: environments of their own, and processes asked over a pipe.

An environment is made once with plain pip, below a folder of the caller's choice, and made again when its packages
change. torch comes first, as a CPU build: from the index in TORCH_INDEX if that is set, else where pip finds it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path("out/peers")
SCRIPTS = Path(__file__).parent / "peers"
TORCH = "torch==2.13.0"
PACKAGES: dict[str, tuple[str, ...]] = {  # arguments of pip install, step by step
    "flower": (TORCH, "flwr[simulation]==1.41.0"),
    "pfl": (TORCH, "pfl[pytorch]==0.6.0"),
    # FedLab asks for torchvision, which needs another torch. Only its data sets use it.
    "fedlab": (TORCH, "--no-deps fedlab==1.3.0", "munch pandas pillow pynvml scikit-learn tqdm"),
    "fedjax": ("fedjax==0.0.17 jax==0.10.2 jaxlib==0.10.2",),
    "ray_tune": (TORCH, "ray[tune]==2.60.0 optuna==5.0.0"),
    "syne_tune": ("syne-tune==0.16.0",),
}
Ask = Callable[..., Any]


def environment(folder: Path, name: str) -> Path:
    """The Python of a peer's environment, which is made unless the folder has it with these packages."""
    home, steps = (folder / name).absolute(), PACKAGES[name]
    python, made = home / "bin" / "python", home / "packages"
    if not made.exists() or made.read_text() != "\n".join(steps):
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        for step in steps:
            index = (
                ["--index-url", os.environ["TORCH_INDEX"]] if step == TORCH and os.environ.get("TORCH_INDEX") else []
            )
            subprocess.run([python, "-m", "pip", "install", "-q", *step.split(), *index], check=True)
        made.write_text("\n".join(steps))
    return python


class PeerError(Exception):
    """A peer's process ended instead of answering."""


@contextmanager
def asked(python: Path, script: Path) -> Iterator[tuple[Ask, int]]:
    """A peer's process: a function (verb, arguments...) -> answer, and the process's number.

    Raises:
        PeerError: The process ended; the message has the end of what it printed.
    """
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def ask(*question: Any) -> Any:
            questions.write(json.dumps(question) + "\n")
            questions.flush()
            line = answers.readline()
            if not line:
                errors.seek(0)
                raise PeerError(f"{script.name} ended:\n{errors.read().decode(errors='replace')[-2000:]}")
            return json.loads(line)

        yield ask, process.pid
        questions.close()
