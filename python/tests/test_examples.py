"""The examples run, few lines of the plain one change, and the docs show them. Run as a program it writes them into the docs."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "examples"
PAGE = Path(__file__).parent.parent.parent / "docs" / "python.md"


def changes() -> list[str]:
    """The differences from mnist_plain.py to mnist.py, with some lines around them."""
    plain, job = ((FOLDER / name).read_text().splitlines() for name in ("mnist_plain.py", "mnist.py"))
    lines = list(difflib.unified_diff(plain, job, n=3, lineterm=""))[2:]
    return [" ..." if line.startswith("@@") else line for line in lines][1:]


def with_changes(page: str) -> str:
    """The page with the differences in its first block of the kind diff."""
    begin = page.index("```diff\n") + len("```diff\n")
    return page[:begin] + "\n".join(changes()) + page[page.index("\n```", begin) :]


def test_few_lines_change() -> None:
    assert sum(line.startswith("+") for line in changes()) <= 8


def test_the_docs_have_the_changes() -> None:
    page = PAGE.read_text()
    assert page == with_changes(page), f"run python3 {__file__}"


def test_the_examples_run(tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path), "--samples", "2000", "--epochs", "2", "--bfloat16"]
    plain = [sys.executable, str(FOLDER / "mnist_plain.py"), *flags, "--checkpoint", str(tmp_path / "plain.pt")]
    job = [os.environ["ELRUN"], "-n", "2", sys.executable, str(FOLDER / "mnist.py"), *flags, "--checkpoint", str(tmp_path / "job")]
    env = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    for command, lines in ((plain, 1), (job, 2)):
        run = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
        )
        assert run.returncode == 0, run.stdout
        at_the_end = [line for line in run.stdout.split("\n") if "epoch 1: 0.9" in line]
        assert len(at_the_end) == lines, run.stdout


if __name__ == "__main__":
    PAGE.write_text(with_changes(PAGE.read_text()))
