"""Data at URLs: refused by default, compared with what is allowed, and never fetched by the API."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import InvalidSpec
from service.api import study_checks
from service.api.allowed_files import only_under
from service.settings import read_service
from service.store.store import Store
from tests.web_server import WebServer, serving

from .api_setup import POINTS, running
from .conftest import SPEC

TASK = {"name": "data", "path": "https://data.example.org/sets/a.csv", "inputs": ["a"]}


@pytest.fixture
def server() -> Iterator[WebServer]:
    with serving() as found:
        found.put("/sets/a.csv", b"a,label,client\n1,0,x\n2,1,y\n")
        yield found


def named(**task: Any) -> dict[str, Any]:
    return POINTS | {"task": TASK | task}


def test_the_api_takes_a_study_and_reads_no_data(server: WebServer, sqlite_store: Store, tmp_path: Path) -> None:
    prefix = f"private:{server.url('/sets/')}"
    checks = only_under([tmp_path], study_checks.check, [prefix], study_checks.check_without_data)
    checks(named(path=server.url("/sets/a.csv")))  # loads what checks need, which may take longer than a client waits
    with running(sqlite_store, check=checks, data_urls=[prefix]) as service, service.client("all") as client:
        body = named(path=server.url("/sets/a.csv"), test={"path": server.url("/sets/none.csv")})
        checked = client.validate(body)
        told = {f"{place}: {study_checks.AT_URL}" for place in ("task.path", "task.test.path")}
        assert told <= set(checked.remarks)
        assert checked.outlook == []
        study = client.create(body)
        assert study.spec["task"] == body["task"]
        assert client.extend(study.id, trials_per_method=3).spec["task"] == body["task"]
        assert client.data_urls(study.id) == [prefix]
        for wrong, message in (
            (named(path=server.url("/sets/../a.csv")), r"^task.path: must have no empty part"),
            (named(path=server.url("/a.csv")), r"^task.path: must begin with one of those that are allowed"),
            (named(path="/etc/passwd"), r"^task.path: must name a file in a folder that this service allows"),
            (body | {"task": body["task"] | {"inptus": "a"}}, r'^task.inptus: unknown key: did you mean "?inputs'),
            (body | {"task": body["task"] | {"words": 0}}, r"^task.words: must be in \[1, "),
            (body | {"methods": [{"name": "fedavgg"}]}, r"^methods\[0\].name: no method"),
            (body | {"methods": [{"name": "fedavg", "space": "theory"}]}, r"^methods\[0\].space: must be ranges"),
            (body | {"budget": {"round": 5}}, r"^budget.round: unknown key"),
        ):
            with pytest.raises(InvalidSpec, match=message):
                client.create(wrong)
    assert server.asked == []


@pytest.mark.parametrize(
    "task",
    [
        {"path": "https://data.example.org/sets/a.csv"},
        {"path": "s3://bucket/own.csv"},
        {"path": "x", "test": {"path": "file:///etc/own"}},
        {"path": "x", "central": {"path": ["http://169.254.169.254/latest/meta-data"]}},
    ],
)
def test_a_service_refuses_every_url_by_default(
    task: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()
    check = only_under([tmp_path], lambda _: pytest.fail("checked"))
    with pytest.raises(
        InvalidSpec, match=r"allowed \(none\), got .*studies.dataUrls in its chart, DRIFTLINE_DATA_URLS"
    ):
        check({"task": {"name": "data", **task}})


def test_a_personal_service_allows_any(sqlite_store: Store) -> None:
    with running(sqlite_store) as service, service.client("all") as client:
        assert client.data_urls(client.create(SPEC).id) is None


def test_the_setting_takes_prefixes_only() -> None:
    given = "https://data.example.org/sets/, s3://bucket/sets,private:http://minio.lab:9000/"
    assert read_service({"DRIFTLINE_DATA_URLS": given}).data_urls == tuple(one.strip() for one in given.split(","))
    assert read_service({}).data_urls == ()
    for wrong in ("data.example.org", "https://a@data.example.org/", "https://*.org/", "file:///srv"):
        with pytest.raises(InvalidSpec, match=r"^DRIFTLINE_DATA_URLS: must "):
            read_service({"DRIFTLINE_DATA_URLS": wrong})
