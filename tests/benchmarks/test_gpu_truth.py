"""The benchmark of GPUs runs to its end on a CPU, and leaves its numbers wherever it is cut off."""

import json
import sys
import time

import pytest

from benchmarks import gpu_truth

ROWS = {
    "rates": [("mlp", "torch, alone"), ("mlp", 1), ("mlp", 2)],
    "evaluated": [("mlp", 1), ("mlp", 2)],
    "drift": [("mlp", "float32"), ("mlp", "tf32"), ("mlp", "bfloat16")],
}


@pytest.mark.slow
def test_all_parts_run_and_are_written(tmp_path, monkeypatch):
    out = tmp_path / "truth"
    given = ["--device", "cpu", "--smoke", "--only", "mlp", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["gpu_truth", *given])
    gpu_truth.main()
    found = json.loads(out.with_suffix(".json").read_text())
    for part, rows in ROWS.items():
        assert [tuple(row.values())[:2] for row in found[part]] == rows
    assert all(row["trials_per_hour"] > 0 for part in ROWS for row in found[part])
    drift = {row["arithmetic"]: row["apart"] for row in found["drift"]}
    assert drift["float32"] == 0
    assert 0 < drift["bfloat16"] < 0.1
    assert "skipped" in found["tests"] or "passed" in found["tests"]
    assert found["not_measured"] == []
    assert "| mlp | 2 |" in out.with_suffix(".md").read_text()


def test_what_was_measured_stays_if_the_rest_has_no_time_or_fails(tmp_path):
    out = tmp_path / "truth"
    report = gpu_truth.Report(out, time.monotonic() + 60, {"machine": "m", "device": "d", "begun": "now"})

    def fails():
        raise RuntimeError("CUDA out of memory. Tried to allocate")

    assert report.row("rates", "mlp 1", 1, lambda: {"model": "mlp", "trials": 1, "trials_per_hour": 5.0}) is not None
    assert report.row("rates", "mlp 512", 1, fails) is None
    assert report.row("rates", "cnn 1", 100, fails) is None
    found = json.loads(out.with_suffix(".json").read_text())
    assert [row["trials_per_hour"] for row in found["rates"]] == [5.0]
    assert found["not_measured"] == ["mlp 512: out of memory", "cnn 1: no time"]
    assert "| mlp | 1 |  | 5 |" in out.with_suffix(".md").read_text()
