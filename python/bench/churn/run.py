"""Trains under several systems with one schedule of kills and joins, and writes what happened as JSON.

    python run.py --data data/mnist --rounds 5 --seconds 40 churn.json

A run has three workers. After a quarter of the time worker 1 is killed with SIGKILL, after a half a new one comes, after
three quarters worker 2 is killed. Systems alternate. ELRUN names the binary elrun. No process is left after a run.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ledger import Ledger, gap, read
from processes import Crew, adopt, wait
from systems import SYSTEMS, System

_HERE = Path(__file__).parent
_SEEDS = 5  # of one process
_EVERY = 0.25  # seconds between points of the curve


def train(system: System, seconds: float, crew: Crew) -> dict[str, Any]:
    """One run: what the ledger says of it."""
    system.start(crew)
    wait(f"{system.name}: three workers train", lambda: _training(crew), 120)
    begin = time.time()
    events = [begin + seconds * part / 4 for part in (1, 2, 3)]
    end = begin + seconds
    events[0] = _at(events[0])
    old = set(crew.workers())
    system.kill(crew, 1)
    events[1] = _at(events[1])
    joins = system.join(crew)
    events[2] = _at(events[2])
    new = [log for log in crew.workers() if log not in old]
    system.kill(crew, 2)
    _at(end)
    (crew.folder / "over").touch()
    with contextlib.suppress(TimeoutError):  # no worker is left
        wait("result", lambda: any(read(log).result for log in crew.workers()), 20)
    crew.close()
    ledger = Ledger(crew.workers(), end)
    progress = ledger.progress()
    calm = [t for t in progress if begin < t <= events[0]]
    effect = min((row.at for log in new for row in read(log).rows if row.own), default=None) if joins else None
    return {
        "system": system.name,
        "kills": [gap(progress, events[0], events[0], events[1]), gap(progress, events[2], events[2], end)],
        "join": effect and gap(progress, events[1], effect, events[2]),
        "joined": effect and effect - events[1],
        "step": 1e3 * statistics.median(b - a for a, b in zip(calm, calm[1:])) if len(calm) > 1 else None,
        "goodput": ledger.samples(begin, end) / seconds,
        "lost": ledger.lost if system.planned else None,
        "repeated": ledger.repeated if system.planned else None,
        "result": ledger.result,
        "curve": [ledger.samples(begin, begin + _EVERY * i) for i in range(1, round(seconds / _EVERY) + 1)],
    }


def _training(crew: Crew) -> bool:
    logs = crew.workers()
    return len(logs) >= 3 and all(log.read_bytes().count(b"\n") > 40 for log in logs[-3:])


def _at(at: float) -> float:
    """Waits until a time, and returns the time then."""
    while (left := at - time.time()) > 0:
        time.sleep(left)
    return time.time()


def alone(steps: int, env: dict[str, str]) -> Any:
    """The loss and accuracy of one process with several seeds, after each hundred steps."""
    command = [sys.executable, str(_HERE / "alone.py"), str(_SEEDS), str(steps)]
    out = subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout)


def lines(script: str) -> int:
    """The lines of a script that the plain one has not, without comments and what only the measurement needs."""
    plain, other = ((_HERE / name).read_text().splitlines() for name in ("plain.py", script))
    added = (line[2:].strip() for line in difflib.ndiff(plain, other) if line.startswith("+ "))
    return sum(1 for line in added if line and not line.startswith(("#", '"""')) and not re.search(r"\b(log|tally|places)\b", line))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data/mnist"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--systems", default="", help="names with commas; all by default")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell makes its background jobs ignore the first one
        signal.signal(number, signal.default_int_handler)
    adopt()
    wanted = args.systems.split(",") if args.systems else [s.name for s in SYSTEMS]
    ready = []
    for system in SYSTEMS:
        if system.name not in wanted:
            continue
        why = system.missing()
        if why:
            print(f"SKIPPED {system.name}: {why}", flush=True)
        else:
            ready.append(system)
    if not ready:
        print("bench-churn: no system can run", file=sys.stderr)
        return 1
    env = {"CHURN_DATA": str(args.data.resolve()), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(_HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    runs = []
    for round_ in range(args.rounds):
        for system in ready[round_ % len(ready) :] + ready[: round_ % len(ready)]:
            folder = Path(tempfile.mkdtemp(prefix="elrun-churn-"))
            crew = Crew(folder, {**env, "CHURN_SEED": str(round_)})
            try:
                run = train(system, args.seconds, crew)
            except TimeoutError as e:
                print(f"round {round_ + 1}, {system.name}: {e}\n{crew.output()[-2000:]}", flush=True)
                continue
            finally:
                crew.close()
                if args.keep:
                    print(f"kept {folder}", flush=True)
                else:
                    subprocess.run(["rm", "-rf", str(folder)], check=True)
            runs.append(run)
            print(f"round {round_ + 1}, {said(run)}", flush=True)
    steps = max((run["result"]["step"] for run in runs if run["result"]), default=0)
    figures = {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[2],
        "seconds": args.seconds,
        "every": _EVERY,
        "systems": [{"name": s.name, "lines": lines(s.script), "needs": s.needs} for s in ready],
        "runs": runs,
        "alone": alone(steps, env),
    }
    args.output.write_text(json.dumps(figures, separators=(",", ":")).replace('{"system"', '\n{"system"') + "\n")
    return 0


def said(run: dict[str, Any]) -> str:
    def ms(value: float | None) -> str:
        return "none" if value is None else f"{value:.0f} ms"

    kills, result = " / ".join(map(ms, run["kills"])), run["result"] or {"step": 0, "loss": float("nan"), "right": 0}
    return (
        f"{run['system']}: no new step for {kills} after kills, {ms(run['join'])} at a join; step {run['step'] or 0:.1f} ms;"
        f" {run['goodput']:.0f} samples a second, {run['lost']} lost, {run['repeated']} repeated;"
        f" loss {result['loss']:.4f}, {100 * result['right']:.2f} % right after {result['step']} steps"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
