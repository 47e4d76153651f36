"""The chart's README.md from its values.yaml: python tests/kubernetes/chart_readme.py > helm/driftline/README.md.

Lines that begin with "# --" (and the comment lines after them) describe the value below them.
"""

import json
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "helm" / "driftline"
INTRODUCTION = """# The Helm chart of Driftline

The chart installs API, scheduler with recorder, MLflow and a small PostgreSQL; studies run as RayJobs of KubeRay.
[docs/kubernetes.md](../../docs/kubernetes.md) explains installation, sizing, backups and troubleshooting step by step;
[UPGRADING.md](UPGRADING.md) lists the changes between versions.

    helm install driftline helm/driftline -n driftline --create-namespace --set image.repository=REGISTRY/driftline
    helm test driftline -n driftline --logs --timeout 16m

Supported from Kubernetes 1.27, with Helm 3.14 or newer, or Helm 4. Every value is checked against `values.schema.json`;
an unknown value is refused. This page is generated from `values.yaml`:
`python tests/kubernetes/chart_readme.py > helm/driftline/README.md`.

## Values

| key | default | meaning |
|---|---|---|
"""


def described(text: str) -> list[tuple[str, Any, str]]:
    """(dotted key, default, description) of every described value, in the file's order.

    Raises:
        ValueError: A value has no description.
    """
    values = yaml.safe_load(text)
    rows, path, comment = [], [], ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# --"):
            comment = stripped.removeprefix("# --").strip()
        elif stripped.startswith("#") and comment:
            comment += " " + stripped.removeprefix("#").strip()
        elif stripped and not stripped.startswith(("#", "-")):
            depth = (len(line) - len(line.lstrip())) // 2
            path = [*path[:depth], stripped.split(":")[0]]
            value = values
            for key in path[:-1]:
                value = value[key] if isinstance(value, dict) and key in value else None
            if (
                not isinstance(value, dict)
                or path[-1] not in value
                or any(".".join(path).startswith(f"{row[0]}.") for row in rows)
            ):
                continue
            value = value[path[-1]]
            if comment:
                rows.append((".".join(path), value, comment))
            elif not (isinstance(value, dict) and value):
                raise ValueError(f"{'.'.join(path)} needs a comment that begins with # --")
            comment = ""
    return rows


def readme(text: str) -> str:
    """The page for a values.yaml."""
    lines = [
        f"| `{key}` | `{json.dumps(value)}` | {comment.replace('|', '&#124;')} |"
        for key, value, comment in described(text)
    ]
    return INTRODUCTION + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(readme((CHART / "values.yaml").read_text()), end="")
