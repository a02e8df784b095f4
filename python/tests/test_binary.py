"""Which binary a program and the command elrun of the package run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import elrun
from elrun import _binary


def executable(path: Path, text: str = "binary") -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, own, on_path = (executable(tmp_path / d / "elrun") for d in ("chosen", "own", "path"))
    command = executable(tmp_path / "env" / "elrun", "#!/usr/bin/python3\nfrom elrun._binary import main\n")
    monkeypatch.setattr(_binary, "_OWN", own)
    monkeypatch.setenv("PATH", f"{tmp_path / 'env'}:{tmp_path / 'path'}")
    monkeypatch.setenv("ELRUN", chosen)
    assert _binary.find() == chosen
    monkeypatch.setenv("ELRUN", command)  # it would look for the binary again, for ever
    assert _binary.find() == own
    os.remove(own)
    assert _binary.find() == on_path
    os.remove(on_path)
    with pytest.raises(elrun.Error, match="install the wheel"):
        _binary.find()
    monkeypatch.setenv("ELRUN", str(tmp_path / "none"))
    with pytest.raises(elrun.Error, match="there is no such file"):
        _binary.find()


def test_module_is_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "elrun", "version"], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout.startswith(f"elrun {elrun.__version__}"), run.stdout


def test_windows_is_refused() -> None:
    program = "import sys; sys.platform = 'win32'; import elrun"
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1 and "install WSL" in run.stderr, run.stderr
