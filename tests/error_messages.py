"""Lists every error message of the product, as its source has it, to be read aloud: python -m tests.error_messages"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("driftline", "service", "trainers", "search_spaces")
ERRORS = {
    *("InvalidSpec", "InvalidRequest", "Unauthorized", "Forbidden", "QuotaExceeded", "RateLimited", "NotFound"),
    *("Conflict", "StaleDriver", "Unavailable", "Broken", "NotJoined", "Expired"),
}


def messages() -> Iterator[tuple[str, str]]:
    """(file and line, error with its arguments) of each error that is made with a text."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                name = ast.unparse(node.func).rpartition(".")[2]
                texts = [part for part in node.args if isinstance(part, ast.JoinedStr | ast.Constant)]
                if texts and (name in ERRORS or name.endswith("Error")):
                    said = ", ".join(ast.unparse(part) for part in node.args)
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", f"{name}({said})"


if __name__ == "__main__":
    for place, message in messages():
        print(f"{place}  {message}")
