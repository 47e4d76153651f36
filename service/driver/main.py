"""A driver as a process of its own: ``python -m service.driver --study ID --url URL --folder FOLDER``.

The token comes in DRIFTLINE_TOKEN, never as an argument that others on the machine could read. SIGTERM and Ctrl-C have
the packs write their checkpoints; the study is then free to be gone on with. Exit code 0 when the study was let go in
any state but FAILED, 1 when it failed, was lost or could not be taken, 5 when another driver has taken over.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from driftline.client.driver_client import DriverClient
from driftline.client.environment import environment
from driftline.errors import DriftlineError
from service.driver.lifecycle import NODES_S, DriverOptions, Ended, run_driver
from service.driver.log_shipping import Shipper
from service.settings import hang_seconds, ray_address

PATIENCE_S = 600.0
"""How long the API may be away before a driver gives up."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a driver; returns its exit code."""
    asked = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    where, token = asked.url or environment().url or "http://driftline", environment().token
    client = DriverClient(where, token, socket=asked.socket, patience_s=PATIENCE_S)
    impatient = DriverClient(where, token, socket=asked.socket, patience_s=0.0)
    shipper = Shipper(impatient, asked.study)

    def taken(attempt: int) -> None:
        shipper.attempt = attempt

    ended: list[Ended | DriftlineError] = []

    def drive() -> None:
        try:
            options = DriverOptions(
                folder=asked.folder,
                address=asked.address or ray_address(),
                num_cpus=asked.num_cpus,
                nodes_s=asked.nodes_seconds,
                worker_gpus=asked.worker_gpus,
                most_nodes=asked.most_nodes,
                hang_s=hang_seconds(),
                progress=lambda line: logging.info("%s", line),
                taken=taken,
            )
            ended.append(run_driver(client, asked.study, stop, options))
        except DriftlineError as error:
            ended.append(error)

    with client, impatient, shipper:
        thread = threading.Thread(target=drive, name="driftline-driver")
        thread.start()
        while thread.is_alive():
            # Again and again: Ray, when it starts, puts a handler in place that aborts the process 3 s after a SIGTERM.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, on_signal)
            thread.join(0.2)
        result = ended[0] if ended else "FAILED"
        if isinstance(result, DriftlineError):
            logging.error("%s", result.message)
    if isinstance(result, DriftlineError):
        return 1
    return {"FAILED": 1, "STALE": 5}.get(result, 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service.driver", description="Drives one study.")
    parser.add_argument("--study", required=True, help="id of the study")
    parser.add_argument("--folder", required=True, help="folder for checkpoints: a path, or a URL that fsspec knows")
    parser.add_argument("--url", help="address of the service; DRIFTLINE_URL by default")
    parser.add_argument("--socket", help="unix socket of the service instead of its address")
    parser.add_argument(
        "--address", help='Ray cluster, or "auto"; DRIFTLINE_RAY_ADDRESS by default, else one is started'
    )
    parser.add_argument(
        "--nodes-seconds", type=float, default=NODES_S, help="how long a joined cluster may take to bring a node"
    )
    parser.add_argument(
        "--worker-gpus", type=float, default=0.0, help="GPUs of the nodes that a joined cluster brings for work"
    )
    parser.add_argument("--most-nodes", type=int, help="how many nodes for work a joined cluster brings at most")
    parser.add_argument("--num-cpus", type=int, help="CPU cores of a Ray that is started here")
    return parser
