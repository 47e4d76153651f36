"""What a release needs beside building: consistent versions, its notes, and a chart that names its image.

    python .ci/release.py check v0.3.0                                   # exits with 1 if a version differs
    python .ci/release.py notes v0.3.0 > notes.md                        # the changelog's section
    python .ci/release.py readme v0.3.0 https://HOST/OWNER/driftline     # README.md with links that work elsewhere
    python .ci/release.py chart REGISTRY/driftline sha256:... --out dist # dist/driftline-0.6.0.tgz
    python .ci/release.py sbom --out dist/driftline.cdx.json             # of the environment that runs it

`.github/workflows/release.yaml` calls these. `chart` needs helm, `sbom` needs cyclonedx-bom.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "driftline"
_APP_VERSION = r"^appVersion: \"?([^\"\n]+)"


def differences(tag: str, root: Path = ROOT) -> list[str]:
    """A line for each place whose version is not the tag's."""
    version = tag.removeprefix("v")
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    places = {
        "pyproject.toml": project,
        "Chart.yaml, appVersion": _value(root / "helm/driftline/Chart.yaml", _APP_VERSION),
        "Dockerfile, ARG VERSION": _value(root / "Dockerfile", r"^ARG VERSION=(.+)$"),
    }
    lines = [f"{place}: {found}, not {version}" for place, found in places.items() if found != version]
    if not notes(tag, root):
        lines.append(f"CHANGELOG.md: no section [{version}]")
    return lines


def _value(file: Path, pattern: str) -> str:
    match = re.search(pattern, file.read_text(), re.MULTILINE)
    return match[1] if match else "missing"


def notes(tag: str, root: Path = ROOT) -> str:
    """The section of CHANGELOG.md about a version, without its heading; "" if the version has no section."""
    version = re.escape(tag.removeprefix("v"))
    text = (root / "CHANGELOG.md").read_text()
    match = re.search(rf"^## \[?{version}\]?(?: [^\n]*)?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match[1].strip() + "\n" if match else ""


def readme(tag: str, url: str, root: Path = ROOT) -> str:
    """README.md with absolute links and pictures, for the page of a package index.

    Args:
        tag: The tag whose files are linked.
        url: Address of the repository.
        root: Folder of the repository.
    """

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1] else "blob"
        return f"{match[0].removesuffix(match[2] + ')')}{url}/{kind}/{tag}/{match[2]})"

    return re.sub(r"(!?)\[[^]]*\]\((?!https?:|#)([^)]+)\)", absolute, (root / "README.md").read_text())


def chart(repository: str, digest: str, out: Path, helm: str = "helm") -> Path:
    """Packages the chart with an image as the default, named by its digest.

    Args:
        repository: Registry and name of the image.
        digest: Its digest, sha256:...
        out: Folder of the archive.
        helm: The program.

    Raises:
        SystemExit: The digest is invalid, or helm fails.
    """
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"digest must be sha256: and 64 hexadecimal digits, got {digest!r}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / CHART.name
        shutil.copytree(CHART, copy)
        values = (copy / "values.yaml").read_text()
        start = values.index("\nimage:\n")
        end = values.index("\nimagePullSecrets:")
        image = values[start:end]
        tag = f"{_value(copy / 'Chart.yaml', _APP_VERSION)}@{digest}"  # another tag, if one is set, replaces both
        named = image.replace('repository: ""', f"repository: {repository}").replace('tag: ""', f"tag: {tag}")
        (copy / "values.yaml").write_text(values[:start] + named + values[end:])
        out.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([helm, "package", copy, "-d", out], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"helm package ended with {done.returncode}: {done.stderr}")
    return Path(done.stdout.strip().rpartition(": ")[2])


def sbom(out: Path) -> None:
    """Writes the packages of this environment as CycloneDX JSON."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON"]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "-o", str(out), sys.executable]
    subprocess.run(command, check=True)


def main() -> None:
    """Runs one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "notes"):
        commands.add_parser(name).add_argument("tag")
    page = commands.add_parser("readme")
    page.add_argument("tag")
    page.add_argument("url")
    packaged = commands.add_parser("chart")
    packaged.add_argument("repository")
    packaged.add_argument("digest")
    packaged.add_argument("--out", type=Path, required=True)
    packaged.add_argument("--helm", default="helm")
    commands.add_parser("sbom").add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "check":
        lines = differences(arguments.tag)
        sys.exit("\n".join(lines) or None)
    if arguments.command == "notes":
        text = notes(arguments.tag)
        if not text:
            sys.exit(f"CHANGELOG.md has no section about {arguments.tag}")
        sys.stdout.write(text)
    elif arguments.command == "readme":
        sys.stdout.write(readme(arguments.tag, arguments.url))
    elif arguments.command == "chart":
        print(chart(arguments.repository, arguments.digest, arguments.out, arguments.helm))
    else:
        sbom(arguments.out)


if __name__ == "__main__":
    main()
