"""The benchmark of GPUs runs to its end on a CPU."""

import json
import sys

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
