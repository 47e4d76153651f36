"""What notebooks show of a job."""

from typing import Any

from driftline.sdk.job_notebook import job_html
from driftline.wire.records import LabelProgress, StudyRecord


def record(**changes: Any) -> StudyRecord:
    values: dict[str, Any] = {
        "id": "01k6",
        "name": "<script>alert(1)</script>",
        "state": "RUNNING",
        "reason": "a < b",
        "spec": {},
        "progress": {"fed<avg": LabelProgress(search={"COMPLETE": 2, "DIVERGED": 1, "RUNNING": 1}, rounds_done=30)},
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    }
    return StudyRecord(**values | changes)


def test_a_notebook_shows_a_job_and_nothing_of_it_is_markup() -> None:
    shown = job_html(record(mlflow_url="https://mlflow/#/x?a=1&b=2"))
    assert "<script>" not in shown
    assert "fed&lt;avg" in shown
    assert "a &lt; b" in shown
    assert ">3 of 4</td>" in shown
    assert 'href="https://mlflow/#/x?a=1&amp;b=2"' in shown
    assert "href" not in job_html(record(mlflow_url="javascript:alert(1)"))
