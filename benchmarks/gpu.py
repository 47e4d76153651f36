"""What a pack of trials costs on a GPU, beside trials one after another there, and beside one core of the CPU.

    make bench-gpu      or      OMP_NUM_THREADS=1 python -m benchmarks.gpu [--repeats 7] [--only mlp] [--out gpu.json]

One round of FedAvg as in benchmarks/engine.py: 10 of 100 clients, 100 examples each, batches of 20, 5 steps, pictures
of 28 x 28 in 62 classes, single precision, made in memory. Packs of 1, 4, 16 and 64 trials on the GPU and a trial alone
on one thread of the CPU train in turns in one process, by the clock, so that ratios are of the same seconds. A ratio is
the median over the repeats, with its quartiles: trials in an hour of the pack / of trials one after another on the GPU,
and / of one core. Then the profiler counts what one round makes the GPU do.

What needs no GPU comes last: the operations of a round, counted on a device that is faked on the CPU. Without a GPU
that is all, unless --device names another device for the rest, to try the script out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine import CASES, Case, data, document, machine, ratios
from tests.trainers.fake_device import FAKE, fake_device
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.trial.document import parse

WIDTHS = (1, 4, 16, 64)
ROUNDS = 200  # of a trial, for trials in an hour
SECONDS = 0.5  # of one measurement
MODELS = {case.model: case.plain for case in CASES}
COUNTED = (("softmax", "stacked"), ("mlp", "stacked"), ("mlp", "vmap"), ("cnn", "loop"), ("cnn", "vmap"))
COUNTED_WIDTHS = (1, 4)


@dataclass
class Lane:
    """A pack whose rounds are timed.

    Args:
        pack: trained on.
        rounds: of one measurement.
        seconds: of a round, one number a repeat.
    """

    pack: Pack
    rounds: int
    seconds: list[float]

    @property
    def each(self) -> list[float]:
        """Seconds of a round of one trial."""
        return [spent / self.pack.members for spent in self.seconds]


def made(model: str, width: int, path: Path, device: str, plan: Plan | None = None) -> Pack:
    case = Case(model, width, 1, MODELS[model])
    return Pack.from_spec(parse(document(case, path)), device=device, plan=plan)


def spent(pack: Pack, rounds: int) -> float:
    """Seconds of a round; the device has done its work when the clock is read."""
    start = time.perf_counter()
    pack.advance(rounds)
    if pack.device.type == "cuda":
        torch.cuda.synchronize(pack.device)
    return (time.perf_counter() - start) / rounds


def lane(pack: Pack) -> Lane:
    """A pack that is warm, and how many rounds of it take about half a second."""
    spent(pack, 2)
    return Lane(pack, max(1, min(100, round(SECONDS / spent(pack, 1)))), [])


def counted(path: Path) -> list[dict[str, Any]]:
    """Operations and reads of a round, on the fake device."""
    found = []
    for model, oracle in COUNTED:
        for width in COUNTED_WIDTHS:
            with fake_device() as calls:
                pack = made(model, width, path, str(FAKE), Plan(oracle, width, 1, "cpu", "float32", 10**6))
                pack.advance(1)
                calls.operations.clear()
                calls.reads = 0
                pack.advance(1)
            row = {"model": model, "oracle": oracle, "width": width}
            found.append({**row, "operations": calls.operations.total(), "reads": calls.reads})
            print(f"| {model} | {oracle} | {width} | {found[-1]['operations']} | {calls.reads} |", flush=True)
    return found


def timed(model: str, path: Path, device: str, widths: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
    """Rounds of packs of all widths and of a trial on the CPU, in turns; the packs come along for the profiler."""
    core = lane(made(model, 1, path, "cpu"))
    lanes = {width: lane(made(model, width, path, device)) for width in widths}
    for _ in range(repeats):
        for one in (core, *lanes.values()):
            one.seconds.append(spent(one.pack, one.rounds))
    found = []
    for width, one in lanes.items():
        row = {
            "model": model,
            "width": width,
            "oracle": one.pack.plan.oracle,
            "rounds_per_second": 1 / statistics.median(one.seconds),
            "trials_per_hour": 3600 / ROUNDS / statistics.median(one.each),
            "against_sequential": ratios(lanes[widths[0]].each, one.each),
            "against_one_core": ratios(core.each, one.each),
            "seconds": one.seconds,
            "core_seconds": core.seconds,
            **(profiled(one.pack) if one.pack.device.type == "cuda" else {}),
        }
        found.append(row)
        print(
            f"| {model} | {width} | {row['oracle']} | {row['rounds_per_second']:.1f} | {row['trials_per_hour']:.0f} "
            f"| {row['against_sequential']} | {row['against_one_core']} | {row.get('kernels', '')} "
            f"| {row.get('reads', '')} | {row.get('busy', '')} |",
            flush=True,
        )
    return found


def profiled(pack: Pack) -> dict[str, Any]:
    """What one round makes the GPU do: kernels, copies to the CPU, the share of the time in which it computes."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        start = time.perf_counter()
        pack.advance(1)
        torch.cuda.synchronize(pack.device)
        seconds = time.perf_counter() - start
    kinds: Counter[str] = Counter()
    busy = 0.0
    for event in trace.events() or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            name = event.name.lower()
            kind = "reads" if "memcpy dtoh" in name else "copies" if "memcpy" in name or "memset" in name else "kernels"
            kinds[kind] += 1
            busy += event.time_range.elapsed_us() / 1e6
        elif event.name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            kinds["waits"] += 1
    counts = {name: kinds[name] for name in ("kernels", "reads", "copies", "waits")}
    return {**counts, "busy": f"{busy / spent(pack, 1):.0%}", "profiled_seconds": seconds, "busy_seconds": busy}


def accelerator(device: str) -> str:
    """The GPU, its driver and what torch was built for."""
    if not device.startswith("cuda"):
        return device
    facts = torch.cuda.get_device_properties(device)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    memory = f"{facts.total_memory >> 30} GiB"
    return f"{facts.name}, {memory}, driver {driver}, CUDA {torch.version.cuda}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7, help="at least 5")
    parser.add_argument("--only", choices=sorted(MODELS), help="one model")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=WIDTHS, help="of packs; the first is what is sequential"
    )
    parser.add_argument("--device", help="instead of cuda")
    parser.add_argument("--out", type=Path, help="a file for all numbers, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = options.device or ("cuda" if torch.cuda.is_available() else None)
    result: dict[str, Any] = {"machine": machine(), "device": None if device is None else accelerator(device)}
    print(f"{result['machine']}\n{result['device'] or 'no GPU'}\n")
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = data(Path(folder))
        if device is not None:
            columns = ["model", "trials", "oracle", "rounds/s", "trials/h", "/ sequential", "/ one core"]
            columns += ["kernels", "reads", "GPU busy"]
            print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
            models = [model for model in MODELS if options.only in (None, model)]
            result["rounds"] = [
                row for model in models for row in timed(model, path, device, tuple(options.widths), options.repeats)
            ]
        print("\n| model | oracle | trials | operations | reads |\n|---|---|---|---|---|", flush=True)
        result["operations"] = counted(path)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
