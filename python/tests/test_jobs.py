"""Jobs of real processes: launcher, programs and sidecars, which are killed and asked to leave."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ELRUN = os.environ["ELRUN"]
HERE = Path(__file__).parent
PATIENCE = 300
SEEDS = int(os.environ.get("ELRUN_SEEDS", "1"))


def start(*args: str, n: int = 0, extra: tuple[str, ...] = (), script: str = "train.py") -> subprocess.Popen[str]:
    """Starts a training, alone or as n peers of a job."""
    program = [sys.executable, str(HERE / script), *args]
    command = [ELRUN, *(["-n", str(n)] if n else []), *extra, *program] if n or extra else program
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def join(name: str, *args: str, n: int, extra: tuple[str, ...] = (), script: str = "train.py") -> str:
    """Lets n peers join a job, waits for their end, and returns what they print."""
    program = [sys.executable, str(HERE / script), *args]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [ELRUN, "join", "-n", str(n), "--name", name, *extra, *program]
    out = subprocess.PIPE
    return subprocess.run(command, env=env, stdout=out, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False).stdout


def finish(p: subprocess.Popen[str]) -> str:
    out, _ = p.communicate(timeout=PATIENCE)
    return out


def ends(out: str) -> list[str]:
    """What each peer printed at its end."""
    return re.findall(r"end (\w{16} \w{16} \S+ \d+)", out)


def wait_for(path: Path, p: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert p.poll() is None and time.monotonic() < deadline, "the job has ended before its third step: " + finish(p)
        time.sleep(0.01)


def programs_of(p: subprocess.Popen[str]) -> list[int]:
    """The process IDs of the programs of a launcher, in the order of their start."""
    threads = Path(f"/proc/{p.pid}/task").glob("*/children")
    return sorted(int(pid) for children in threads for pid in children.read_text().split())


def alive(session: int) -> list[int]:
    """The processes that run in the session that start has begun."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().rpartition(")")
        except OSError:  # it has ended meanwhile
            continue
        state, _, _, of = rest.split()[:4]
        if int(of) == session and state != "Z":
            found.append(int(pid.split()[0]))
    return found


def gone(session: int) -> None:
    """Waits until no process of the session runs."""
    deadline = time.monotonic() + PATIENCE
    while alive(session):
        assert time.monotonic() < deadline, f"processes {alive(session)} are left"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def alone() -> str:
    p = start("--exact")
    out = finish(p)
    assert p.returncode == 0, out
    return ends(out)[0]


def test_exact_like_alone(alone: str) -> None:
    p = start("--exact", n=2)
    out = finish(p)
    assert p.returncode == 0, out
    assert ends(out) == [alone] * 2, out


def test_events_have_rates_and_means(tmp_path: Path) -> None:
    log = tmp_path / "log"
    p = start("--epochs", "1", n=1, extra=("--events", str(log)))
    out = finish(p)
    assert p.returncode == 0, out
    steps = [e for e in map(json.loads, log.read_text().splitlines()) if e["event"] == "step"]
    assert len(steps) == 8
    assert steps[0]["lr"] == 0.01 and 0 < steps[-1]["lr"] < 0.01, steps
    assert all(0 <= e["metrics"]["right"] <= 1 for e in steps), steps


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_kills_and_joins(alone: str, tmp_path: Path, seed: int, exact: bool) -> None:
    """Five of six peers are killed, one after the other, and two join. ELRUN_SEEDS is the number of schedules."""
    choose = random.Random(seed)
    victims, steps = choose.sample(range(1, 6), 5), sorted(choose.sample(range(4, 24), 5))
    kills = ",".join(f"{step}:{victim}:{choose.randrange(3)}" for step, victim in zip(steps, victims))
    ready, imported, name = tmp_path / "ready", tmp_path / "imported", f"kills{os.getpid()}-{seed}"
    program = ["--pace", "0.05", *(["--exact"] if exact else [])]
    logs = [tmp_path / "log", tmp_path / "late"]
    extra = [("--events", str(log)) for log in logs]
    # Step 5 waits for the newcomers' import of torch, which takes long.
    p = start(*program, "--ready", str(ready), "--hold", str(imported), "--kill", kills, n=6, extra=("--name", name, *extra[0]))
    wait_for(ready, p)
    late = join(name, *program, "--imported", str(imported), n=2, extra=extra[1])
    out = finish(p)
    assert p.returncode == 0 and "killed by signal 9" in out, out
    want = alone if exact else ends(out)[0]
    assert ends(out) == [want], f"kills {kills}: {out}"
    # The newcomers train along, unless they came after the end.
    assert set(ends(late)) <= {want}, f"kills {kills}: {late}"
    assert ledger(logs) == {step: [0, 1, 2, 3] for step in range(1, 25)}, f"kills {kills}"


def ledger(logs: list[Path]) -> dict[int, list[int]]:
    """The microbatches of each step that the peers have computed, from the logs of all launchers. None is computed twice."""
    parts: dict[tuple[int, str], list[list[int]]] = {}
    for log in logs:
        for line in log.read_text().splitlines() if log.exists() else ():
            event = json.loads(line)
            if event["event"] == "step":
                assert event["recomputed"] == 0, line
                parts[event["step"], event["peer"]] = event["microbatches"]
                # The others tell of the last steps of a peer that has died.
                parts.update(((c["step"], c["peer"]), c["microbatches"]) for c in event.get("of_lost", ()))
    done: dict[int, list[int]] = {}
    for (step, _), ranges in parts.items():
        done.setdefault(step, []).extend(m for first, end in ranges for m in range(first, end))
    return {step: sorted(microbatches) for step, microbatches in done.items()}


def held(folder: Path, n: int = 0) -> tuple[subprocess.Popen[str], Path]:
    """Starts a training that stands in its fifth step until the returned file exists, and waits for its third step."""
    ready, hold = folder / "ready", folder / "hold"
    p = start("--ready", str(ready), "--hold", str(hold), n=n)
    wait_for(ready, p)
    return p, hold


def capability() -> str:
    """The kernels that torch chooses here; "" where the version of torch does not tell."""
    cpu = getattr(torch.backends, "cpu", None)
    return cpu.get_cpu_capability() if cpu else ""


@pytest.mark.skipif(capability() == "DEFAULT", reason="this processor has one set of kernels")
def test_unequal_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPABILITIES", "default,avx2,default,avx2")
    ready, imported, name = tmp_path / "ready", tmp_path / "imported", f"uneven{os.getpid()}"
    # Step 5 waits for the newcomer's import of torch.
    p = start("--epochs", "26", "--ready", str(ready), "--hold", str(imported), n=4, extra=("--name", name))
    wait_for(ready, p)
    os.kill(programs_of(p)[3], signal.SIGKILL)
    late = join(name, "--epochs", "26", "--imported", str(imported), n=1)
    out = finish(p)
    assert p.returncode == 0, out
    hashes = ends(out) + ends(late)
    assert len(hashes) >= 3 and len(set(hashes)) == 1, out + late
    assert "rounds updates differently" in out and "wrong state" not in out + late, out


def test_own_decisions_are_found() -> None:
    p = start("--epochs", "26", "--plateau", n=2)
    out = finish(p)
    assert p.returncode == 0, out  # the other peer finishes
    assert re.search(r"elrun.Error: lr of Adam was \S+ at this peer and \S+ at others after step 100: decide alike", out), out
    assert len(ends(out)) == 1, out


def test_resume_with_another_number(alone: str, tmp_path: Path) -> None:
    # A job of one epoch saves its last steps; the job of three goes on.
    p = start("--exact", "--epochs", "1", "--checkpoint", str(tmp_path), "--steps-between", "4", n=2)
    out = finish(p)
    assert p.returncode == 0, out
    p = start("--exact", "--epochs", "3", "--checkpoint", str(tmp_path))
    out = finish(p)
    assert p.returncode == 0, out
    assert "resumed after step 8" in out
    assert ends(out) == [alone], out


@pytest.mark.parametrize(("how", "status"), [("exception", 1), ("exit", 3), ("hard", 3)])
def test_failures_alone(how: str, status: int) -> None:
    p = start("--fail", how)
    out = finish(p)
    assert p.returncode == status, out
    assert ("ValueError: bad sample" in out) == (how == "exception"), out
    gone(p.pid)  # the sidecar ends with its program


def test_the_last_line_has_the_error() -> None:
    p = start("--fail", "exception", n=2)
    out = finish(p)
    assert p.returncode == 1, out
    assert "ValueError: bad sample" in out.rstrip().split("\n")[-1], out


def test_sigterm_leaves(tmp_path: Path) -> None:
    p, hold = held(tmp_path, n=2)
    os.kill(programs_of(p)[1], signal.SIGTERM)
    hold.touch()
    out = finish(p)
    assert p.returncode == 0, out
    assert len(ends(out)) == 1, out


def test_ctrl_c_ends(tmp_path: Path) -> None:
    p, _ = held(tmp_path)
    p.send_signal(signal.SIGINT)
    out = finish(p)
    assert p.returncode == -signal.SIGINT, out
    assert "KeyboardInterrupt" in out


def test_a_killed_sidecar_is_an_error(tmp_path: Path) -> None:
    p, hold = held(tmp_path)
    os.kill(programs_of(p)[0], signal.SIGKILL)
    hold.touch()
    out = finish(p)
    assert p.returncode == 1, out
    assert "elrun.Lost: the sidecar" in out and "signal 9" in out


def sidecar_of(program: int, session: int) -> int:
    """The process ID of the sidecar of a program."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in alive(session)}
    return next(pid for pid, command in commands.items() if command[1:3] == [b"sidecar", str(program).encode()])


# How a job of two peers ends, with the options of the training and the status of the launcher.
ENDS: dict[str, tuple[tuple[str, ...], int]] = {
    "launcher": ((), -signal.SIGKILL),
    "interrupt": ((), 130),
    "term": ((), 143),
    "sidecar": ((), 0),
    "kill": ((), 0),
    "exception": (("--fail", "exception"), 1),
    "exit": (("--fail", "exit"), 1),
    "hard": (("--fail", "hard"), 1),
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_left_of_a_job(tmp_path: Path, seed: int) -> None:
    """Each seed is another end. ELRUN_SEEDS is the number of seeds."""
    how = list(ENDS)[seed % len(ENDS)]
    options, status = ENDS[how]
    if options:
        p = start(*options, n=2)
    else:
        p, hold = held(tmp_path, n=2)
    if how == "launcher":
        p.kill()
    elif how == "interrupt":
        p.send_signal(signal.SIGINT)
    elif how == "term":
        p.terminate()
    elif how == "kill":
        os.kill(programs_of(p)[1], signal.SIGKILL)
    elif how == "sidecar":
        os.kill(sidecar_of(programs_of(p)[1], p.pid), signal.SIGKILL)
    if not options:
        hold.touch()
    out = finish(p)
    assert p.returncode == status, f"{how}: status {p.returncode}: {out}"
    gone(p.pid)


def test_a_stopped_program_joins_again(tmp_path: Path) -> None:
    p, hold = held(tmp_path, n=3)
    stopped = programs_of(p)[1]
    os.kill(stopped, signal.SIGSTOP)
    hold.touch()
    assert p.stdout is not None
    before = ""
    while "its program is stopped" not in before:
        line = p.stdout.readline()
        assert line, before
        before += line
    os.kill(stopped, signal.SIGCONT)
    out = before + finish(p)
    assert p.returncode == 0, out
    # The stopped peer trains along again, unless the others have finished meanwhile.
    assert len(set(ends(out))) == 1 and len(ends(out)) >= 2, out


def test_a_second_job_is_alone() -> None:
    p = start("--epochs", "1", "--again", n=2)
    out = finish(p)
    assert p.returncode == 0, out
    assert out.count("again with 1 peer") == 2, out


def curves(out: str) -> list[dict[int, float]]:
    """The losses by step that each peer of weigh.py printed."""
    lines = re.findall(r"losses ((?:\d+:\S+ ?)+)", out)
    return [{int(step): float(loss) for step, loss in (p.split(":") for p in line.split())} for line in lines]


def test_losses_by_tokens_do_not_depend_on_the_peers(tmp_path: Path) -> None:
    p = start(script="weigh.py")
    want = curves(finish(p))[0]
    assert len(want) == 12 and want[12] < want[1]
    for n in 2, 4:
        ready, hold = tmp_path / f"ready{n}", tmp_path / f"hold{n}"
        p = start(str(ready), str(hold), n=n, script="weigh.py")
        wait_for(ready, p)
        if n == 4:
            os.kill(programs_of(p)[1], signal.SIGKILL)
        hold.touch()
        out = finish(p)
        assert p.returncode == 0, out
        got = curves(out)
        assert len(got) == (3 if n == 4 else 2), out
        for curve in got:
            assert set(curve) == set(want)
            assert all(abs(curve[step] - want[step]) <= 1e-5 for step in want), (n, curve, want)
