"""A program in Python with a sidecar: the protocol of docs/internals/sidecar.md, with the standard library only.

Usage: sidecar.py SIDECAR [unhold]. SIDECAR is the command of the sidecar. With unhold the thread that holds the
lock ends after 20 requests, which the sidecar takes for the end of this program.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading

PAGE = 4096
F_ADD_SEALS, SEALS = 1033, 1 | 2 | 4  # no further seals, no shrinking, no growing
PTHREAD_PROCESS_SHARED = PTHREAD_MUTEX_ROBUST = 1
mapped = []  # the kernel reads the lock when its thread ends: the mapping must live longer than the thread


def hold_word(release):
    """Returns the file of a robust lock that a thread of its own holds until release is set, or for ever."""
    fd = os.memfd_create("word", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE)
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    page = mmap.mmap(fd, PAGE)
    mapped.append(page)
    libc = ctypes.CDLL(None)
    lock = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    kind = ctypes.create_string_buffer(64)
    libc.pthread_mutexattr_init(kind)
    libc.pthread_mutexattr_setpshared(kind, PTHREAD_PROCESS_SHARED)
    libc.pthread_mutexattr_setrobust(kind, PTHREAD_MUTEX_ROBUST)
    held = threading.Event()

    def hold():
        # Signals go to the main thread, whose waits they must interrupt.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if libc.pthread_mutex_init(lock, kind) == 0:
            libc.pthread_mutex_lock(lock)
        held.set()
        release.wait()

    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    return fd


def answer(sidecar, release):
    """Answers the requests of the sidecar, and returns the status that it sends at the end."""
    n = 0
    while request := sidecar.recv(1):
        if request != b"w":
            return int(request)
        n += 1
        if n == 20:
            print("works", os.environ.get("ELRUN_INDEX", "0"), flush=True)
            if "unhold" in sys.argv and os.environ.get("ELRUN_INDEX") == "1":
                release.set()
        sidecar.send(b"d")
    raise ConnectionResetError


def main():
    release = threading.Event()
    word = hold_word(release)
    ours, theirs = socket.socketpair()
    fds = [theirs.fileno(), word]
    launcher = os.environ.get("ELRUN_FD")
    if launcher:
        fds.append(int(launcher))
    environment = dict(os.environ, LAUNCH_TEST_ROLE="sidecar", LAUNCH_TEST_SIDECAR_FD=str(fds[0]), LAUNCH_TEST_WORD_FD=str(word))
    sidecar = subprocess.Popen(sys.argv[1:2], env=environment, pass_fds=fds)
    theirs.close()
    os.close(word)
    if launcher:
        os.close(int(launcher))  # children of this program must not hold it
    os.register_at_fork(after_in_child=ours.close)
    signal.signal(signal.SIGTERM, lambda *_: sidecar.send_signal(signal.SIGTERM))
    print("started", os.environ.get("ELRUN_INDEX", "0"), os.getpid(), sidecar.pid, flush=True)
    status = 4
    try:
        status = answer(ours, release)
    except ConnectionError:
        pass  # the sidecar is lost
    sidecar.wait()
    sys.exit(status)


main()
