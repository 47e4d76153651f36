"""The file that a program's command begins with: one rule for the check of a study and for its trials."""

from __future__ import annotations

import os
import shutil
import sys

from trainers import shown

PYTHON = "python"
"""As the first word of a command: the Python that runs Driftline."""

_FIRST_LINE = 256  # bytes of a script's first line that Linux reads


def command_file(word: str, folder: str, search_path: str) -> str:
    """The file that the first word of a command names; it need not exist.

    Args:
        word: The word: `PYTHON`, a path, which is relative to the folder, or a name.
        folder: The folder in which the program starts; a name is looked up there first.
        search_path: The folders in which a name is looked up next, as in the variable PATH.
    """
    if word == PYTHON:
        return sys.executable
    in_folder = os.path.join(folder, word.removeprefix("./"))
    if os.path.dirname(word) or (os.path.isfile(in_folder) and os.access(in_folder, os.X_OK)):
        return in_folder
    folders = [os.path.join(folder, entry) for entry in search_path.split(os.pathsep)]  # relative to `folder`
    return shutil.which(word, path=os.pathsep.join(folders)) or in_folder


def obstacle(file: str) -> str | None:
    """Why a file cannot be executed, in words; None if no reason is known."""
    if not os.path.exists(file):
        return "which does not exist"
    if not os.path.isfile(file):
        return "which is no file"
    if not os.access(file, os.X_OK):
        return "which may not be executed: allow it (chmod +x), or begin the command with an interpreter"
    try:
        with open(file, "rb") as content:
            line = content.readline(_FIRST_LINE)
    except OSError:  # it may be executed, but not read
        return None
    interpreter = os.fsdecode(line.removeprefix(b"#!").strip(b" \t\n").split(b" ")[0].split(b"\t")[0])
    if line.startswith(b"#!") and not os.path.exists(interpreter):
        return f"whose first line names an interpreter that does not exist, {shown(interpreter)}"
    return None
