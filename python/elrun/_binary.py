"""Where the binary elrun is, and the command elrun of the package, which runs it."""

from __future__ import annotations

import os
import sys

from . import Error

_OWN = os.path.join(os.path.dirname(__file__), "bin", "elrun")


def find() -> str:
    """The path of the binary: $ELRUN, that of the wheel, or the first on the PATH."""
    on_path = [os.path.join(d, "elrun") for d in os.environ.get("PATH", os.defpath).split(os.pathsep) if d]
    for path in (os.environ.get("ELRUN", ""), _OWN, *on_path):
        if path and os.path.isfile(path) and os.access(path, os.X_OK) and not _is_command(path):
            return path
        if path and path == os.environ.get("ELRUN") and not os.path.exists(path):
            raise Error(f"ELRUN={path}: there is no such file")
    raise Error("no binary elrun: install the wheel of elrun, put the binary on the PATH, or set ELRUN to its path")


def _is_command(path: str) -> bool:
    """Whether path is the command of such a package, which would look for the binary again."""
    with open(path, "rb") as f:
        head = f.read(1000)
    return head.startswith(b"#!") and b"elrun._binary" in head


def main() -> None:
    """Becomes the binary elrun, with the arguments of this process."""
    try:
        path = find()
        os.execv(path, ["elrun", *sys.argv[1:]])
    except (Error, OSError) as e:
        sys.exit(f"elrun: {e}")
