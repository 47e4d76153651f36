"""The results of docs/papers.md are what its command writes from the records, and every record is of a preset."""

import pytest

from benchmarks import overhead, papers_page
from driftline.study.examples import paper_texts
from driftline.study.papers import preset
from tests.trainers.datasets import needs


def test_the_page_is_that_of_the_records():
    assert papers_page.PAGE.read_text(encoding="utf-8").split(papers_page.HEADING)[1] == papers_page.results()


@needs("movielens_latest_small/ratings.csv.gz")
def test_the_table_of_overhead_is_that_of_the_counters():
    assert overhead.table("small") in papers_page.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted(papers_page.RECORDS.glob("*.json")), ids=lambda file: file.stem)
def test_a_record_is_of_panels_that_the_preset_has(file):
    assert file.stem in paper_texts()
    panels = papers_page.recorded(file.stem)
    assert set(panels) <= set(preset(file.stem).panels)
    for panel in panels.values():
        assert (papers_page.RECORDS / panel["picture"]).exists()
    assert any(panel["statements"] for panel in panels.values())


def test_a_preset_that_changed_since_its_run_and_a_panel_that_is_missing_are_said():
    name, of = "d-theorem1", preset("d-theorem1")
    panels = papers_page.recorded(name)
    assert "has changed since" not in papers_page.section(name, of, panels)
    older = {"batch_1": {**panels["batch_1"], "fingerprint": "of before"}}
    page = papers_page.section(name, of, older)
    assert "The preset has changed since." in page.replace("\n", " ")
    assert "batch_8, batch_64: not run" in page.replace("\n", " ")
    agreeing = [{**row, "outcome": "agrees"} for row in panels["batch_1"]["statements"]]
    alone = papers_page.section(name, of, {"batch_1": {**panels["batch_1"], "statements": agreeing}})
    assert "**Undecided.**" in alone
