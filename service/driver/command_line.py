"""The driver process: ``python -m service.driver --study ID --url URL --folder FOLDER``.

The token comes from DRIFTLINE_TOKEN, never from an argument, which other users of the machine could read. On SIGTERM or
Ctrl-C the packs write their checkpoints, and the driver releases the study, which can then be resumed. Exit codes: 0 if
the study was released in any state but FAILED; 1 if it failed, was lost or could not be acquired; 5 if another driver
has taken over.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Sequence
from types import FrameType

from driftline.client.driver_client import DriverClient
from driftline.client.environment import environment
from driftline.errors import DriftlineError
from service.driver.lifecycle import NODES_S, DriverOptions, Ended, run_driver
from service.driver.log_shipping import Shipper
from service.log_file import log_to_stderr
from service.settings import hang_seconds, ray_address

PATIENCE_S = 600.0
"""How long the API may be unreachable before the driver gives up."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a driver; returns its exit code."""
    args = _parser().parse_args(arguments)
    log_to_stderr(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    where, token = args.url or environment().url or "http://driftline", environment().token
    client = DriverClient(where, token, socket=args.socket, patience_s=PATIENCE_S)
    impatient = DriverClient(where, token, socket=args.socket, patience_s=0.0, nonce=client.nonce)
    shipper = Shipper(impatient, args.study)

    def taken(attempt: int) -> None:
        shipper.attempt = attempt

    ended: list[Ended | DriftlineError] = []

    def drive() -> None:
        try:
            options = DriverOptions(
                folder=args.folder,
                address=args.address or ray_address(),
                num_cpus=args.num_cpus,
                nodes_s=args.nodes_seconds,
                worker_gpus=args.worker_gpus,
                most_nodes=args.most_nodes,
                hang_s=hang_seconds(),
                progress=lambda line: logging.info("%s", line),
                taken=taken,
            )
            ended.append(run_driver(client, args.study, stop, options))
        except DriftlineError as error:
            ended.append(error)

    with client, impatient, shipper:
        thread = threading.Thread(target=drive, name="driftline-driver")
        thread.start()
        while thread.is_alive():
            # Repeated, because Ray, when it starts, installs a handler that aborts the process 3 s after a SIGTERM.
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
    parser.add_argument("--folder", required=True, help="folder for checkpoints: a path or an fsspec URL")
    parser.add_argument("--url", help="address of the service; DRIFTLINE_URL by default")
    parser.add_argument("--socket", help="unix socket of the service instead of its address")
    parser.add_argument(
        "--address", help='address of a Ray cluster, or "auto"; by default DRIFTLINE_RAY_ADDRESS, else starts Ray here'
    )
    parser.add_argument(
        "--nodes-seconds", type=float, default=NODES_S, help="how long to wait for a node of a joined cluster"
    )
    parser.add_argument(
        "--worker-gpus", type=float, default=0.0, help="GPUs of each worker node that a joined cluster can add"
    )
    parser.add_argument("--most-nodes", type=int, help="most worker nodes that a joined cluster can have")
    parser.add_argument("--num-cpus", type=int, help="CPU cores of a Ray started here")
    return parser
