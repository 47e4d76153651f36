"""What checkov finds in the chart is what was reviewed in checkov.yaml: nothing more, and nothing that is gone."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from .conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FOLDER = ROOT / "build" / "checkov"
VERSION = "3.3.30"
RENDERED = {
    "default": {},
    "more": {
        "studies": {"launcher": "local"},
        "scheduler": {"replicaCount": 1},
        "api": {"autoscaling": {"enabled": True}},
        "data": {"enabled": True, "download": {"url": "https://example.org/data.tar.gz", "sha256": "a" * 64}},
        "ingress": {
            "enabled": True,
            "hosts": [{"host": "a.example.org"}],
            "mlflowHosts": [{"host": "m.example.org"}],
            "tls": [{"secretName": "certificate", "hosts": ["a.example.org", "m.example.org"]}],
        },
        "gateway": {"enabled": True, "parentRefs": [{"name": "shared"}], "hostnames": ["a.example.org"]},
        "metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}},
        "priorityClasses": {"create": True},
    },
}


@pytest.fixture(scope="module")
def checkov():
    """Checkov in an environment of its own: its dependencies are older than ours."""
    program = FOLDER / VERSION / "bin" / "checkov"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", FOLDER / VERSION], check=True)
        # Of its hundred packages the test imports few: nothing is compiled before it is needed.
        install = ["install", "-q", "--no-compile", f"checkov=={VERSION}"]
        python = FOLDER / VERSION / "bin" / "python"
        subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True, timeout=400)
    return program


@pytest.fixture(scope="module")
def findings(checkov, helm, tmp_path_factory):
    """(check, its name, resource) of all that failed, over both renderings."""
    folder = tmp_path_factory.mktemp("checkov")
    for name, values in RENDERED.items():
        (folder / f"{name}.yaml").write_text(helm.template(values).stdout)
    command = [checkov, "-d", folder, "--framework", "kubernetes", "--compact", "-o", "json"]
    env = {**os.environ, "BC_SKIP_MAPPING": "TRUE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    passed = Counter(item["file_path"] for item in report["results"]["passed_checks"])
    assert passed.keys() == {f"/{name}.yaml" for name in RENDERED}
    assert min(passed.values()) > 400
    return {(item["check_id"], item["check_name"], item["resource"]) for item in report["results"]["failed_checks"]}


def test_findings_are_the_reviewed_ones(findings):
    reviewed = yaml.safe_load((ROOT / "tests" / "kubernetes" / "checkov.yaml").read_text())
    for check, name, resource in findings:
        assert check in reviewed, f"{check}, {name}: {resource}"
        where = reviewed[check]["where"]
        assert where == "all" or resource in where, f"{check}: {resource}"
    found = {(check, resource) for check, _, resource in findings}
    gone = {
        (check, resource)
        for check, item in reviewed.items()
        for resource in (item["where"] if item["where"] != "all" else ())
        if (check, resource) not in found
    }
    gone |= {(check, "all") for check in set(reviewed) - {check for check, _ in found}}
    assert not gone, "these are no longer found: take them out of checkov.yaml"
