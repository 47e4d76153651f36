"""What checkov finds in the chart is what was reviewed in checkov.yaml: nothing more, and nothing that is gone."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from .conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FOLDER = ROOT / "build" / "checkov"
VERSION = "3.3.30"


@pytest.fixture(scope="module")
def checkov():
    """Checkov in an environment of its own: its dependencies are older than ours."""
    program = FOLDER / VERSION / "bin" / "checkov"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER / VERSION], check=True)
        install = [FOLDER / VERSION / "bin" / "python", "-m", "pip", "install", "-q", f"checkov=={VERSION}"]
        subprocess.run(install, check=True, timeout=400)
    return program


def test_findings_are_the_reviewed_ones(checkov, helm, tmp_path):
    file = tmp_path / "chart.yaml"
    file.write_text(helm.template({}).stdout)
    command = [checkov, "-f", file, "--framework", "kubernetes", "--compact", "--quiet", "-o", "json"]
    env = {**os.environ, "BC_SKIP_MAPPING": "TRUE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    found = json.loads(done.stdout)
    assert found["summary"]["parsing_errors"] == 0
    assert found["summary"]["passed"] > 400
    reviewed = yaml.safe_load((ROOT / "tests" / "kubernetes" / "checkov.yaml").read_text())
    seen = set()
    for item in found["results"]["failed_checks"]:
        check = item["check_id"]
        assert check in reviewed, f"{check}, {item['check_name']}: {item['resource']}"
        where = reviewed[check]["where"]
        assert where == "all" or item["resource"] in where, f"{check}: {item['resource']}"
        seen.add(check)
    assert seen == set(reviewed), "these are no longer found: take them out of checkov.yaml"
