"""The ``git`` command: asked in a folder, of the repository that the folder lies in and of no other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

PATIENCE_S = 60
ELSEWHERE = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
        *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
        *("GIT_REPLACE_REF_BASE", "GIT_NO_REPLACE_OBJECTS", "GIT_ATTR_SOURCE", "GIT_QUARANTINE_PATH"),
        *("GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
    }
)
"""What a hook of git, or whoever started this, says of a repository: it would be asked in place of the folder's own.

All of ``git rev-parse --local-env-vars``, and what changes how paths are understood. A user's own settings stay.
"""

_SETTINGS = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_PAGER": "cat",
}


def ask_git(
    folder: Path, words: Sequence[str], question: bytes = b"", patience_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[bytes]:
    """What git answers, in English and without a pause. Raises OSError, ValueError, subprocess.TimeoutExpired."""
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return subprocess.run(
        ["git", "--no-pager", *words],
        cwd=folder,
        env=environment | _SETTINGS,
        input=question,
        capture_output=True,
        timeout=patience_s,
        check=False,
    )
