"""Jobs of real processes whose peers have workers for their data."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from test_jobs import finish, gone, programs_of, start, wait_for


def test_random_numbers_do_not_depend_on_peers() -> None:
    """Pools of the program's own, which end their processes by SIGTERM, disturb nothing."""
    found = []
    for options, n in (([], 0), (["--workers", "2", "--pools"], 3)):
        p = start("--exact", *options, n=n, script="data.py")
        out = finish(p)
        assert p.returncode == 0 and out.count("end") == max(n, 1), out
        lines = re.findall(r"sample (.*)", out)
        # A step may be computed twice, if its scale did not fit.
        found.append(sorted(set(lines)))
        gone(p.pid)
    assert found[0] == found[1]
    assert len(found[0]) == 2 * 96
    assert len({x for line in found[0] for x in line.split()[2:]}) == 3 * 2 * 96


def test_peers_with_other_data_are_refused() -> None:
    p = start("--differ", n=2, script="data.py")
    out = finish(p)
    assert p.returncode != 0, out
    assert re.search(r"data .*96 samples, \w{16}.*96 samples, \w{16}", out), out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left(how: signal.Signals, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    p = start("--workers", "4", "--ready", str(ready), "--hold", str(tmp_path / "hold"), n=1, script="data.py")
    wait_for(ready, p)
    (program,) = programs_of(p)
    if how == signal.SIGINT:
        p.send_signal(how)
    else:
        os.kill(program, how)
    out = finish(p)
    assert p.returncode == (130 if how == signal.SIGINT else 1), out
    assert out.count("Traceback") <= 1, out
    gone(p.pid)


def test_nothing_is_loaded_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    p = start(str(log), "--load", "0", "--pace", "0", script="slow.py")
    out = finish(p)
    assert p.returncode == 0, out
    loads = Counter(line.split()[1] for line in log.read_text().split("\n") if line.startswith("load"))
    assert len(loads) == 500
    compared = [n for n in loads.values() if n != 2]  # twice more by each peer at the start
    assert compared == [4] * 8, loads
