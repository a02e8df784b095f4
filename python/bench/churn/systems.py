"""The systems, and how each starts, loses and gains a worker."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
import sys
import time
from pathlib import Path

from processes import Crew, children, kill, wait

_HERE = Path(__file__).parent


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class System:
    """A way to train with workers that die and come.

    name      the name in tables
    script    the script of a worker
    package   the distribution that it needs, and the version for which the script is written
    needs     what runs beside the workers
    planned   whether each step has samples that are known before it, so that lost and repeated ones can be told
    """

    name = ""
    script = ""
    package = ("torch", "2.15")
    needs = "nothing"
    planned = True

    def missing(self) -> str:
        """Why it can't run here; empty if it can."""
        name, version = self.package
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{name} is not installed"
        return "" if found.startswith(version) else f"{name} is {found}, want {version}"

    def start(self, crew: Crew) -> None:
        """Starts three workers."""
        raise NotImplementedError

    def kill(self, crew: Crew, who: int) -> None:
        kill(crew.pid(who))

    def join(self, crew: Crew) -> bool:
        """Starts a worker in place of the first one that was killed; False if the system has done so itself."""
        raise NotImplementedError

    def _worker(self, crew: Crew, who: int, **env: str) -> None:
        crew.start(sys.executable, _HERE / self.script, CHURN_WHO=str(who), **env)


class Elrun(System):
    name = "elrun"
    script = "with_elrun.py"

    def missing(self) -> str:
        if not os.path.exists(os.environ.get("ELRUN", "")):
            return "ELRUN does not name the binary"
        return super().missing()

    def start(self, crew: Crew) -> None:
        self._name = f"churn-{os.getpid()}"
        crew.start(os.environ["ELRUN"], "-n", "3", "--name", self._name, sys.executable, _HERE / self.script)

    def join(self, crew: Crew) -> bool:
        command = (os.environ["ELRUN"], "join", "-n", "1", "--name", self._name, sys.executable, _HERE / self.script)
        crew.start(*command, CHURN_WHO="3")
        return True


class Torchrun(System):
    name = "torchrun"
    script = "with_torchrun.py"

    def start(self, crew: Crew) -> None:
        crew.start(
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=3", "--max-restarts=20"),
            *("--monitor-interval=0.1", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{_port()}", _HERE / self.script),
        )

    def join(self, crew: Crew) -> bool:
        return False


class Torchft(System):
    """torchft with its DistributedDataParallel and the flags of its README."""

    name = "torchft"
    script = "with_torchft.py"
    package = ("torchft", "0.2")
    needs = "a lighthouse"
    flags: tuple[str, ...] = ("--quorum_tick_ms", "100", "--join_timeout_ms", "10000")
    env: tuple[tuple[str, str], ...] = ()

    def start(self, crew: Crew) -> None:
        self._address = f"127.0.0.1:{_port()}"
        lighthouse = Path(sys.executable).with_name("torchft_lighthouse")
        crew.start(lighthouse, "--bind", self._address, "--min_replicas", "1", *self.flags)
        host, port = self._address.split(":")
        wait("the lighthouse", lambda: _listens(host, int(port)), 30)
        for who in range(3):
            self._start(crew, who)

    def join(self, crew: Crew) -> bool:
        self._start(crew, 1)
        return True

    def _start(self, crew: Crew, who: int) -> None:
        self._worker(crew, who, TORCHFT_LIGHTHOUSE=f"http://{self._address}", **dict(self.env))


class TorchftTuned(Torchft):
    """torchft with short timeouts and one allreduce by its manager."""

    name = "torchft tuned"
    script = "with_torchft_tuned.py"
    flags = ("--quorum_tick_ms", "10", "--join_timeout_ms", "200", "--heartbeat_timeout_ms", "500")


class Hivemind(System):
    name = "Hivemind"
    script = "with_hivemind.py"
    package = ("hivemind", "1.1")
    needs = "a DHT, in the workers"
    planned = False

    def start(self, crew: Crew) -> None:
        self._worker(crew, 0)
        wait("the DHT", lambda: (crew.folder / "dht").exists(), 60)
        self._worker(crew, 1)
        self._worker(crew, 2)

    def kill(self, crew: Crew, who: int) -> None:
        pid = crew.pid(who)
        for p in [pid, *children(pid)]:  # its DHT is a process of its own
            kill(p)

    def join(self, crew: Crew) -> bool:
        self._worker(crew, 1)
        return True


class Pccl(System):
    name = "PCCL"
    script = "with_pccl.py"
    needs = "a master"

    def missing(self) -> str:
        if importlib.util.find_spec("pccl") is None:
            return "pccl is not installed; its wheel wants CUDA and Python 3.12, so build it from source without CUDA"
        return super().missing()

    def start(self, crew: Crew) -> None:
        self._master = f"127.0.0.1:{_port()}"
        crew.start(sys.executable, "-m", "pccl.master", "--listen-address", self._master)
        host, port = self._master.split(":")
        wait("the master", lambda: _listens(host, int(port)), 30)
        for who in range(3):
            self._worker(crew, who, PCCL_MASTER=self._master)

    def join(self, crew: Crew) -> bool:
        self._worker(crew, 1, PCCL_MASTER=self._master)
        return True


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        time.sleep(0.05)
        return False
    return True


SYSTEMS: list[System] = [Elrun(), TorchftTuned(), Torchft(), Torchrun(), Pccl(), Hivemind()]
