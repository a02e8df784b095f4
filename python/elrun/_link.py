"""The connection with the sidecar: a socket, and memory that both have mapped."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from typing import NamedTuple

from . import Error, Lost, _binary, _lock

VERSION = 3
"""Version of the frames; the sidecar must have the same."""

_HEAD = struct.Struct("<B7xQqd")

# Kinds of frames, in the order of trainer/remote.
(
    HELLO,
    WORK,
    DONE,
    APPLY,
    APPLIED,
    SAVE,
    BLOB,
    LOAD,
    LOADED,
    POINT,
    PART,
    SUM,
    GOON,
    END,
    LEAVE,
    FAIL,
    AHEAD,
    BUSY,
) = range(1, 19)


# What a launcher sets for its peers.
_LAUNCHER = [
    f"ELRUN_{name}" for name in ("JOB", "INDEX", "NP", "FD", "TRANSPORT", "ENCRYPT", "RELAY", "LISTEN", "NODE", "SITE", "GRACE")
]


class Frame(NamedTuple):
    """A message of the sidecar."""

    kind: int
    a: int
    b: float
    payload: bytes


_ROOM = 1 << 36 if sys.maxsize > 1 << 32 else 0  # bytes for vectors of the sidecar, behind those of the program


def _memory_file(size: int, room: int = 0) -> int:
    """A descriptor of zeroed memory that only its holders can reach. The room behind it takes no memory before its use."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("elrun", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size + room)
        except OSError:  # a limit on the length of files
            os.ftruncate(fd, size)
        seals = getattr(fcntl, "F_SEAL_SHRINK", 2) | getattr(fcntl, "F_SEAL_GROW", 4) | getattr(fcntl, "F_SEAL_SEAL", 1)
        fcntl.fcntl(fd, getattr(fcntl, "F_ADD_SEALS", 1033), seals)
        return fd
    with tempfile.TemporaryFile() as f:  # systems without memfd
        fd = os.dup(f.fileno())
    os.ftruncate(fd, size)
    return fd


def _no_breakpoint(*_: object, **__: object) -> None:
    """Is breakpoint() in a peer of a job. While a debugger waits at a prompt, the others would wait for the peer."""
    raise Error(
        "breakpoint() in a peer of a job, whose terminal is the launcher's: debug the script alone, without elrun before python3,"
        " or set PYTHONBREAKPOINT to a debugger that needs no terminal"
    )


class Link:
    """A sidecar of this process. One thread uses it at a time."""

    def __init__(self, size: int) -> None:
        fd = _memory_file(size, _ROOM)
        self.memory = mmap.mmap(fd, size)
        self._sock, theirs = socket.socketpair()
        self._lock = _lock.Lock()
        inherited = [theirs.fileno(), fd] + ([self._lock.fd] if self._lock.fd >= 0 else [])
        # The sidecar speaks with the launcher. No other child of this program may hold that connection.
        launcher = os.environ.get("ELRUN_FD")
        if launcher is not None:
            inherited.append(int(launcher))
        command = [_binary.find(), "sidecar", str(os.getpid()), str(theirs.fileno()), str(fd), str(size), str(self._lock.fd)]
        try:
            self._process = subprocess.Popen(command, pass_fds=inherited, stdin=subprocess.DEVNULL)
        except OSError as e:
            raise Error(f"{command[0]} cannot be started: {e}") from e
        finally:
            theirs.close()
            os.close(fd)
            self._lock.close_file()
        self._launched = launcher is not None
        if launcher is not None:
            os.close(int(launcher))
            # Another Job of this program, or of a child, is a group of its own.
            for name in _LAUNCHER:
                os.environ.pop(name, None)
        self._pid = os.getpid()
        self._closed = False
        self._ended = False
        self._failure = ""
        self._sending = False
        self._leave_later = False
        self.joined = False  # the sidecar has been told to join the job
        self._hooks()

    # Life of the process.

    def _hooks(self) -> None:
        me = weakref.ref(self)

        # A SIGTERM for a child waits until the child has the effect of the signal that it had before the job: Python forgets
        # a signal whose handler is taken away before it runs.
        fork = threading.local()

        def before() -> None:
            link = me()
            handles = link is not None and not link._closed and link._previous is not None
            fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]) if handles else None

        def after() -> None:
            if fork.mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, fork.mask)

        def forked() -> None:
            link = me()
            if link is not None:
                link._forked()
            after()

        os.register_at_fork(before=before, after_in_parent=after, after_in_child=forked)
        atexit.register(self._exit)
        previous = sys.excepthook

        def hook(kind, error, trace):  # type: ignore[no-untyped-def]
            link = me()
            if link is not None:
                link._failure = link._failure or f"{kind.__name__}: {error}".rstrip(": ").split("\n")[0]
            previous(kind, error, trace)

        sys.excepthook = hook
        self._breakpoint = sys.breakpointhook
        if self._launched and self._breakpoint is sys.__breakpointhook__ and not os.environ.get("PYTHONBREAKPOINT"):
            sys.breakpointhook = _no_breakpoint
        self._previous = None
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, number: int, frame: object) -> None:
        if os.getpid() != self._pid or self._closed or not self.joined:
            self._restore_signal()
            os.kill(os.getpid(), signal.SIGTERM)
            return
        # A frame that is being sent must stay whole.
        if self._sending:
            self._leave_later = True
        else:
            self.send(LEAVE)

    def _restore_breakpoint(self) -> None:
        if sys.breakpointhook is _no_breakpoint:
            sys.breakpointhook = self._breakpoint

    def _restore_signal(self) -> None:
        """Gives SIGTERM back the effect that it had before."""
        with contextlib.suppress(ValueError):  # not the main thread
            if self._previous is not None and signal.getsignal(signal.SIGTERM) == self._on_term:
                signal.signal(signal.SIGTERM, self._previous)

    def _forked(self) -> None:
        """Runs in a child of this program: the job is the parent's."""
        self._closed = True
        self._sock.close()
        self._restore_signal()
        self._restore_breakpoint()

    def _exit(self) -> None:
        if os.getpid() == self._pid:
            self.close("" if self._ended else self._failure or "the program has ended before its training")

    def close(self, failure: str = "") -> None:
        """Ends the connection and waits for the sidecar. failure is the reason if the training is not done."""
        if self._closed:
            return
        if failure:
            with contextlib.suppress(Error):
                self.send(FAIL, payload=failure.encode()[:4096])
        self._closed = True
        if not failure:
            self._sock.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._sock.close()
        self._lock.release()
        self._restore_signal()
        self._restore_breakpoint()
        atexit.unregister(self._exit)

    def ended(self) -> None:
        """Notes that the sidecar has ended the training."""
        self._ended = True

    # Frames.

    def send(self, kind: int, a: int = 0, b: float = 0.0, payload: bytes | memoryview = b"") -> None:
        self.check()
        self._sending = True
        try:
            self._sock.sendall(_HEAD.pack(kind, len(payload), a, b))
            if payload:
                self._sock.sendall(payload)
        except OSError as e:
            raise self._lost() from e
        finally:
            self._sending = False
        if self._leave_later:
            self._leave_later = False
            self.send(LEAVE)

    def receive(self) -> Frame:
        """The next frame. It waits for the other peers if need be."""
        self.check()
        kind, length, a, b = _HEAD.unpack(self._read(_HEAD.size))
        return Frame(kind, a, b, self._read(length))

    def _read(self, n: int) -> bytes:
        buffer = bytearray(n)
        view = memoryview(buffer)
        got = 0
        while got < n:
            try:
                more = self._sock.recv_into(view[got:])
            except OSError:
                more = 0
            if more == 0:
                raise self._lost()
            got += more
        return bytes(buffer)

    def check(self) -> None:
        """Raises if the job has ended, or is that of a parent process."""
        if os.getpid() != self._pid:
            raise Error("this process is a child of the job's program: make a Job of its own there, or use none")
        if self._closed:
            raise Error("this job has ended: make a new Job")

    def _lost(self) -> Lost:
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return Lost("the sidecar lives, but has closed the connection")
        self._closed = True
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        return Lost(f"the sidecar, this program's part of the job, has ended {how}: see its lines above")
