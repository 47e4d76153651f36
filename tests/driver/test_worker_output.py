"""What workers print comes into the driver's log, with the pack's name, and not without end."""

import json
import logging
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from service.driver.job import MARK
from service.driver.ray.worker import Worker
from service.driver.ray.worker_output import LONGEST, Output


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(*lines: str, pid: int = 1, ip: str = "10.0.0.1", error: bool = False) -> dict[str, Any]:
    return {"ip": ip, "pid": pid, "is_err": error, "lines": list(lines)}


def test_lines_have_the_name_of_the_pack_that_their_process_trains(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "service.driver.ray.worker_output")
    output = Output()
    output.take(batch("hello", "", f"{MARK}p1", "loading"))
    output.take(batch("careful", error=True))
    output.take(batch(f"{MARK}p2", "another", pid=2))
    output.take(batch("elsewhere", ip="10.0.0.2"))  # the same process id, on another node
    output.take(batch(f"{MARK}p3", "next"))
    output.take({**batch("Pending demands"), "pid": "autoscaler"})
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "process 1: hello"),
        ("INFO", "pack p1: loading"),
        ("WARNING", "pack p1: careful"),
        ("INFO", "pack p2: another"),
        ("INFO", "process 1: elsewhere"),
        ("INFO", "pack p3: next"),
    ]


def test_a_flood_is_cut_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "service.driver.ray.worker_output")
    clock = Clock()
    output = Output(2.0, 5, clock)
    output.take(batch(*(f"line {number}" for number in range(1000))))
    assert len(caplog.records) == 5
    output.take(batch(f"{MARK}p1"))  # the name of the pack is read even when lines are dropped
    clock.now = 1.0
    output.take(batch("later"))
    assert [record.message for record in caplog.records[5:]] == [
        "995 lines that workers printed were left out: more than 2 a second",
        "pack p1: later",
    ]
    output.take(batch("x" * 5000, "and", "more"))
    assert len(caplog.records[-1].message) == len("pack p1: ") + LONGEST + 4
    output.close()
    assert caplog.records[-1].message.startswith("2 lines")


def test_what_cannot_be_read_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Output().take({"pid": 1, "lines": None})
    assert "could not be read" in caplog.text


def test_a_worker_says_what_it_trains(capsys: pytest.CaptureFixture[str]) -> None:
    worker = Worker.__new__(Worker)
    for pack, take in (("p1", worker.setup), ("p2", worker.reset_config)):
        take({"job": json.dumps({"pack": pack, "document": {}, "prefix": "", "start": [1, 1]})})
        said = capsys.readouterr()
        assert (said.out, said.err) == (f"{MARK}{pack}\n",) * 2


@pytest.mark.slow
@pytest.mark.ray
def test_prints_warnings_and_the_end_of_a_process_come_through_a_real_ray() -> None:
    code = """
        import logging, sys, time
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
        heard = []

        class Ear(logging.Handler):
            def emit(self, record):
                heard.append(record.getMessage())

        logging.getLogger().addHandler(Ear())
        from service.driver.ray import cluster
        from service.driver.job import MARK

        def work(mark):
            import os, sys, warnings
            for stream in (sys.stdout, sys.stderr):
                print(mark + "pack-7", file=stream, flush=True)
            print("a print")
            warnings.warn("a warning")
            os.write(2, b"a C library\\n")

        def crash():
            import ctypes
            ctypes.string_at(0)

        with cluster.connect("study", None, print, num_cpus=1):
            import ray
            ray.get(ray.remote(work).remote(MARK))
            try:
                ray.get(ray.remote(crash).options(max_retries=0).remote())
            except ray.exceptions.WorkerCrashedError:
                print("crashed", flush=True)
            wanted = ["a print", "a warning", "a C library", ("SIGSEGV", "Segmentation fault")]
            end = time.monotonic() + 60
            while time.monotonic() < end:
                text = "\\n".join(heard)
                if all(any(each in text for each in ([one] if isinstance(one, str) else one)) for one in wanted):
                    break
                time.sleep(0.1)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    for text in ("starting Ray (5-20 s) ...", "crashed"):
        assert text in done.stdout  # not a line of its own when Ray prints a warning at the same moment
    assert "a print" not in done.stdout
    assert "INFO pack pack-7: a print" in done.stderr
    assert "WARNING pack pack-7: a C library" in done.stderr
    assert "UserWarning: a warning" in done.stderr
    assert "SIGSEGV" in done.stderr or "Segmentation fault" in done.stderr
    assert MARK not in done.stderr
