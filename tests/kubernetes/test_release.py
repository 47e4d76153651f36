"""What a release does here: versions, notes, and a chart that is pushed to a registry, pulled again and rendered."""

import importlib.util
import re
import shutil

import pytest
import yaml

from driftline import __version__ as VERSION
from tests.kubernetes.conftest import LOADER, ROOT, lacking
from tests.kubernetes.local_registry import LocalRegistry
from tests.ports import free_port

spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
release = importlib.util.module_from_spec(spec)
spec.loader.exec_module(release)

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
CHANGELOG = f"""# Changelog

## Unreleased

### Added
- Not yet.

## [{VERSION}] - 2026-12-01

### Added
- Packs.

## [0.1.0] - 2026-11-01
- Everything.
"""


@pytest.fixture
def project(tmp_path):
    """A copy of the files that hold versions, with a changelog."""
    for name in ("pyproject.toml", "Dockerfile", "helm/driftline/Chart.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_the_versions_of_a_release_agree(project):
    assert release.differences(f"v{VERSION}", project) == []
    lines = release.differences("v9.9.9", project)
    places = ["pyproject.toml", "Chart.yaml, appVersion", "Dockerfile, ARG VERSION"]
    assert lines == [f"{place}: {VERSION}, not 9.9.9" for place in places] + ["CHANGELOG.md: no section [9.9.9]"]


def test_links_of_the_readme_work_on_a_package_index():
    text = release.readme(f"v{VERSION}", "https://host/owner/driftline")
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", text)
    ours = [(picture, link) for picture, link in links if link.startswith("https://host/owner/driftline/")]
    assert ("!", f"https://host/owner/driftline/raw/v{VERSION}/docs/first-results/digits.png") in ours
    assert ("", f"https://host/owner/driftline/blob/v{VERSION}/docs/studies.md") in ours
    for _, link in ours:
        assert (ROOT / link.partition(f"/v{VERSION}/")[2].partition("#")[0]).is_file()
    assert all(link.startswith("https://") for _, link in links)


def test_the_notes_are_the_section_of_the_version(project):
    assert release.notes(f"v{VERSION}", project) == "### Added\n- Packs.\n"
    assert release.notes("v0.1.0", project) == "- Everything.\n"
    assert release.notes("v0.1", project) == ""


def test_a_wrong_digest_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="digest must be sha256: and 64 hexadecimal digits, got 'sha256:1'"):
        release.chart("registry.example.org/driftline", "sha256:1", tmp_path)


@pytest.fixture
def registry(tmp_path):
    """The address of a registry on this computer."""
    if shutil.which("docker-registry") is None:
        lacking("apt-get install docker-registry")
    found = LocalRegistry(tmp_path / "registry", free_port())
    try:
        found.start()
        yield found.address
    finally:
        found.stop()


def test_a_pushed_chart_installs_its_image_without_values(helm, registry, tmp_path):
    image = f"{registry}/driftline"
    packaged = release.chart(image, DIGEST, tmp_path / "dist", helm.path)
    pushed = helm("push", str(packaged), f"oci://{registry}/charts", "--plain-http")
    digest = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", pushed.stdout + pushed.stderr, re.MULTILINE)[1]
    chart = f"oci://{registry}/charts/driftline"
    helm("pull", f"{chart}@{digest}", "--plain-http", "-d", str(tmp_path / "pulled"), "--untar")
    assert (tmp_path / "pulled" / "driftline" / "values.schema.json").exists()
    version = ["--version", yaml.load((release.CHART / "Chart.yaml").read_text(), LOADER)["version"]]
    text = helm("template", "r", chart, *version, "--plain-http", "--namespace", "ns").stdout
    images = set(re.findall(r"image: \"?([^\s\"]+)", text))
    app = yaml.load((release.CHART / "Chart.yaml").read_text(), LOADER)["appVersion"]
    assert images == {f"{image}:{app}@{DIGEST}", "postgres:17"}
    own = ("--set", "image.repository=mine", "--set", "image.tag=own", "--plain-http", "--namespace", "ns")
    assert "mine:own" in helm("template", "r", chart, *version, *own).stdout
