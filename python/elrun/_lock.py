"""A lock that tells the sidecar at once when this process is killed.

The kernel ends a process by freeing its memory, which takes 65 ms for each GB, and only then tells of its end. But it
marks the robust locks of the process's threads before that.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable

_PAGE = 4096
_F_ADD_SEALS, _SEALS = 1033, 1 | 2 | 4  # no further seals, no shrinking, no growing
_SHARED = _ROBUST = 1


class Lock:
    """A robust lock at the beginning of a memory file, which a thread holds as long as this process runs.

    That is the main thread if it makes the lock: a fork beside another thread makes Python warn. Otherwise it is a thread
    for this purpose, because the lock is free at the end of its holder.
    """

    def __init__(self) -> None:
        """Takes the lock. fd is the descriptor of its file, or -1 where the system has no such locks."""
        self.fd = -1
        self._release = threading.Event()
        self._thread: threading.Thread | None = None
        self._unlock: Callable[[], object] | None = None
        if not sys.platform.startswith("linux"):
            return
        libc = ctypes.CDLL(None)
        if not (hasattr(os, "memfd_create") and hasattr(libc, "pthread_mutexattr_setrobust")):
            return
        fd = os.memfd_create("elrun-lock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _PAGE)
        fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
        # The kernel reads the lock when its thread ends, so the mapping must live longer than the thread.
        self._page = mmap.mmap(fd, _PAGE)
        lock = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._page)))
        kind = ctypes.create_string_buffer(64)
        libc.pthread_mutexattr_init(kind)
        libc.pthread_mutexattr_setpshared(kind, _SHARED)
        libc.pthread_mutexattr_setrobust(kind, _ROBUST)
        done, taken = threading.Event(), []

        def take() -> None:
            taken.append(libc.pthread_mutex_init(lock, kind) == 0 and libc.pthread_mutex_lock(lock) == 0)

        def hold() -> None:
            # Signals go to the main thread, whose waits they must interrupt.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            take()
            done.set()
            self._release.wait()
            libc.pthread_mutex_unlock(lock)

        if threading.current_thread() is threading.main_thread():
            take()
            self._unlock = lambda: libc.pthread_mutex_unlock(lock)
        else:
            self._thread = threading.Thread(target=hold, name="elrun-lock", daemon=True)
            self._thread.start()
            done.wait()
        if taken[0]:
            self.fd = fd
        else:
            os.close(fd)

    def release(self) -> None:
        """Gives back the lock, when no sidecar watches it any more."""
        self._release.set()
        if self._thread is not None:
            self._thread.join()
        if self._unlock is None:
            return
        if threading.current_thread() is threading.main_thread():
            self._unlock()
        else:  # the page stays until the main thread ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._page))
        self._unlock = None

    def close_file(self) -> None:
        """Closes the descriptor, when the sidecar has its own."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
