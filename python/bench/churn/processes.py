"""The processes of a run: whatever they start ends with the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


def adopt() -> None:
    """Makes this process the parent of all that its descendants leave behind, so that children finds it. Linux only."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children(of: int) -> list[int]:
    """The living descendants of a process."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = stat.read_text().rpartition(")")[2].split()
            if words[0] != "Z":
                parents.setdefault(int(words[1]), []).append(int(stat.parent.name))
    found, todo = [], [of]
    while todo:
        new = parents.get(todo.pop(), [])
        found += new
        todo += new
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait(what: str, condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.01)


class Crew:
    """The processes of a run, with a folder for their logs."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self._env = {**os.environ, **env, "CHURN_OUT": str(folder)}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str | Path, **env: str) -> None:
        with open(self.folder / f"output.{len(self._started)}", "wb") as output:
            self._started.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    env={**self._env, **env},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def logs(self, who: int | str = "*") -> list[Path]:
        """The logs of a worker, of each of its lives, the newest last."""
        return sorted(self.folder.glob(f"{who}.[0-9]*"), key=lambda log: log.stat().st_mtime)

    def workers(self) -> list[Path]:
        return [log for log in self.logs() if log.name[0].isdigit()]

    def pid(self, who: int) -> int:
        return int(self.logs(who)[-1].suffix[1:])

    def output(self) -> str:
        return "".join(f.read_text(errors="replace") for f in sorted(self.folder.glob("output.*")))

    def close(self) -> None:
        """Ends all processes of the run, and what they have left behind."""
        for p in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(p.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            wait("end", lambda: not children(os.getpid()), 1)
        end = time.monotonic() + 30
        while left := children(os.getpid()):
            for pid in left:
                kill(pid)
            self._reap()
            if time.monotonic() > end:
                raise TimeoutError(f"processes {left} do not end")
            time.sleep(0.01)
        self._reap()

    def _reap(self) -> None:
        for p in self._started:
            p.poll()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
