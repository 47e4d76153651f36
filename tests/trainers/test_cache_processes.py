"""The cache of data between processes: one that is killed leaves no half entry, and the one that waits makes it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, time
from pathlib import Path
from trainers import disk_cache

def make(folder: Path) -> None:
    (folder / "numbers").write_text("half")
    print("half", flush=True)
    if sys.argv[1] == "stuck":
        time.sleep(600)
    (folder / "numbers").write_text("whole")

print(disk_cache.entry("a", make, lambda folder: (folder / "numbers").read_text()), flush=True)
"""


def started(folder: Path, how: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, how], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_no_half_entry(tmp_path: Path) -> None:
    with started(tmp_path, "stuck") as stuck:
        assert stuck.stdout is not None
        try:
            assert stuck.stdout.readline() == "half\n"
            with started(tmp_path, "whole") as waiting:
                os.kill(stuck.pid, signal.SIGKILL)
                try:
                    assert waiting.communicate(timeout=60)[0] == "half\nwhole\n"
                finally:
                    waiting.kill()
        finally:
            stuck.kill()
    entries = tmp_path / "driftline" / "data"
    assert (entries / "a" / "numbers").read_text() == "whole"
    assert not list(entries.glob("*.part"))
