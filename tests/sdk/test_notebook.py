"""What notebooks show of a job and of what it returns."""

from driftline.results.comparison import compare
from driftline.results.document import frontier_document
from driftline.sdk.frames import CurvesByTrial, TrialRecords
from driftline.sdk.frontier import Frontier
from driftline.sdk.job_notebook import job_html
from driftline.wire.budgets import CheckedStudy
from driftline.wire.records import LabelProgress
from tests.results.samples import Chosen, study
from tests.wire.made_records import study_record, trial_record


def test_a_notebook_shows_a_job_and_nothing_of_it_is_markup() -> None:
    progress = LabelProgress(search={"COMPLETE": 2, "DIVERGED": 1, "RUNNING": 1}, rounds_done=30)
    name = "<script>alert(1)</script>"
    record = study_record(name=name, reason="a < b", progress={"fed<avg": progress}, mlflow_url="https://m/#/x?a=1&b=2")
    shown = job_html(record)
    assert "<script>" not in shown
    assert "fed&lt;avg" in shown
    assert "a &lt; b" in shown
    assert ">3 of 4</td>" in shown
    assert 'href="https://m/#/x?a=1&amp;b=2"' in shown
    assert "href" not in job_html(study_record(mlflow_url="javascript:alert(1)"))


def test_trials_curves_and_checked_studies_are_short() -> None:
    done = trial_record(label="fed<avg", state="COMPLETE", values={"quality": -0.25, "speed": 0.5})
    trials = TrialRecords([done, *[trial_record(state="FAILED")] * 29], "test_loss")
    assert repr(trials) == "TrialRecords(30 trials: 1 complete, 29 failed)"
    assert repr(TrialRecords([], "test_loss")) == "TrialRecords(0 trials)"
    page = trials._repr_html_()
    assert ">fed&lt;avg</td>" in page
    assert ">0.25</td>" in page
    assert page.count("<tr>") == 1 + 20
    assert page.endswith("and 10 more")
    assert repr(CurvesByTrial({"a": {"round": [0], "loss": [1.0]}})) == "CurvesByTrial(1 trials: round, loss)"
    checked = CheckedStudy(spec={"name": "a<b"}, fingerprint="", remarks=["look & see"])
    assert repr(checked) == "CheckedStudy('a<b', 1 remarks)"
    assert "a&lt;b" in checked._repr_html_()
    assert "look &amp; see" in checked._repr_html_()


def test_a_comparison_is_a_dict_and_a_page() -> None:
    result = frontier_document("s", study(("fedavg", "<b>"), 8, confirm=2), Chosen(), 200)
    compared = Frontier(result).compare("fedavg", "<b>")
    assert compared == compare(result, "fedavg", "<b>")
    page = compared._repr_html_()
    assert "fedavg or &lt;b&gt;? Not decided: one search each" in page
    assert "<b>" not in page.removeprefix("<p><b>")
    compared["efforts"] = [{"trials": 8, "difference": 0.05, "low": 0.01, "high": 0.09}]
    assert ">after 8 trials</td>" in compared._repr_html_()
    assert ">fedavg by 0.050 (0.010 to 0.090)</td>" in compared._repr_html_()
