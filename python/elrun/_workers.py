"""Processes that load microbatches ahead of their use.

Each worker has a socket of its own, so one that is killed disturbs no other. Commands are pickles. A result is a head of
fixed length, and the descriptor of memory with the data: when its holders have ended, nothing is left of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import itertools
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing

from . import Error, _link

_COMMAND = struct.Struct("<q")  # length of the pickle
_RESULT = struct.Struct("<qqqq")  # step and first sample, whether it is an error, length of the pickle
_ALIGNMENT = 64
_PATIENCE = 0.01  # seconds until a worker tries again to pass on memory when too much is under way


class _Pickler(pickle.Pickler):
    """Leaves the elements of tensors where they are, for its buffer_callback."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: list[torch.Tensor] = []  # owners of the memory

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
            return NotImplemented
        value = value.detach().resolve_conj().resolve_neg().contiguous()
        length = value.numel() * value.element_size()
        if length == 0:
            return _tensor, (None, value.dtype, tuple(value.shape))
        self._kept.append(value)
        memory = (ctypes.c_char * length).from_address(value.data_ptr())
        return _tensor, (pickle.PickleBuffer(memory), value.dtype, tuple(value.shape))


def _tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype) if data is None else torch.frombuffer(data, dtype=dtype).reshape(shape)


def _pack(value: Any) -> tuple[int, int]:
    """Memory with the value: its descriptor, and the length of the pickle at its beginning."""
    stream = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    pickler = _Pickler(stream, 5, buffer_callback=buffers.append)
    pickler.dump(value)
    raws = [b.raw() for b in buffers]
    head = pickle.dumps((stream.getvalue(), [len(r) for r in raws]))
    places, at = [0], len(head)
    for r in raws:
        at += -at % _ALIGNMENT
        places.append(at)
        at += len(r)
    fd = _link._memory_file(at)
    for place, data in zip(places, [memoryview(head), *raws]):
        while len(data):
            done = os.pwrite(fd, data, place)
            place, data = place + done, data[done:]
    return fd, len(head)


def _unpack(fd: int, length: int) -> Any:
    data = memoryview(bytearray(os.fstat(fd).st_size))
    at = 0
    while at < len(data):
        at += os.preadv(fd, [data[at:]], at)
    pickled, lengths = pickle.loads(data[:length])
    buffers, at = [], length
    for n in lengths:
        at += -at % _ALIGNMENT
        buffers.append(data[at : at + n])
        at += n
    return pickle.loads(pickled, buffers=buffers)


# The side of a worker.


class _Queue:
    """The microbatches that a worker has to load. A thread reads commands, and ends the process with its parent."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._changed = threading.Condition()
        self._pending: dict[tuple[int, int], tuple[Any, list[int]]] = {}  # by key: its order, and the samples
        self._seen: set[tuple[int, int]] = set()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        numbers = itertools.count()
        try:
            while True:
                (length,) = _COMMAND.unpack(_exactly(self._sock, _COMMAND.size))
                step, now, microbatches = pickle.loads(_exactly(self._sock, length))
                with self._changed:
                    self._seen = {k for k in self._seen if k[0] >= step}
                    self._pending = {k: v for k, v in self._pending.items() if k[0] >= step}
                    for key, indices in microbatches:
                        if key in self._pending or key not in self._seen:
                            self._pending[key] = ((not now, key[0], next(numbers)), indices)
                            self._seen.add(key)
                    self._changed.notify()
        finally:
            os._exit(0)  # the parent has closed the connection, or has ended

    def next(self) -> tuple[tuple[int, int], list[int]]:
        """Takes the microbatch that is needed first: of those in a WORK, then of the earlier step."""
        with self._changed:
            while not self._pending:
                self._changed.wait()
            key = min(self._pending, key=lambda k: self._pending[k][0])
            return key, self._pending.pop(key)[1]


def _exactly(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _work(sock: socket.socket, load: Callable[[int, list[int]], Any], init: Callable[[], None]) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)  # the parent computes
    queue = _Queue(sock)
    started = ""
    try:
        init()
    except Exception as e:
        started = _described(e)
    while True:
        key, indices = queue.next()
        failed = started
        if not failed:
            try:
                fd, length = _pack(load(key[0], indices))
            except Exception as e:
                failed = _described(e)
        if failed:
            fd, length = _pack(failed)
        sys.stdout.flush()  # the end of a worker is abrupt
        while True:
            try:
                sent = socket.send_fds(sock, [_RESULT.pack(*key, bool(failed), length)], [fd])
                break
            except OSError as e:
                if e.errno not in (errno.ETOOMANYREFS, errno.EMFILE):
                    return  # the parent has ended
                time.sleep(_PATIENCE)
        os.close(fd)
        assert sent == _RESULT.size


def _described(e: Exception) -> str:
    """The line that names an exception, and its traceback."""
    sample = getattr(e, "elrun_sample", None)
    where = "" if sample is None else f"sample {sample}: "
    return f"{where}{type(e).__name__}: {e}".split("\n")[0] + "\n" + traceback.format_exc()


# The side of the training.


class Pool:
    """Workers that load microbatches, each named by its step and its first sample. One thread uses it."""

    def __init__(
        self, n: int, load: Callable[[int, list[int]], Any], init: Callable[[int], None], context: Any, timeout: float
    ) -> None:
        self._timeout = timeout
        self._step = 0  # no earlier ones are needed
        self._asked: dict[tuple[int, int], int] = {}  # by key: the worker that has been asked for it
        self._done: dict[tuple[int, int], Any] = {}
        self.unforeseen = 0.0  # seconds that the last get waited for microbatches that were not foreseen
        self._sockets: list[socket.socket] = []
        self._processes: list[Any] = []
        self._finish = weakref.finalize(self, _stop, os.getpid(), self._sockets, self._processes)
        # A child must not hold the connections, by whose end workers learn that the parent has ended.
        os.register_at_fork(after_in_child=_closer(weakref.ref(self)))
        if context is None or isinstance(context, str):
            context = torch.multiprocessing.get_context(context)
        for i in range(n):
            ours, theirs = socket.socketpair()
            self._sockets.append(ours)
            process = context.Process(target=_work, args=(theirs, load, _Init(init, i)), name=f"elrun-loader-{i}", daemon=True)
            try:
                process.start()
            except Exception as e:
                raise Error(f"worker {i} of the loader cannot be started: {e}") from e
            finally:
                theirs.close()
            self._processes.append(process)
        self._poll = select.poll()
        for s in self._sockets:
            self._poll.register(s, select.POLLIN)

    def close(self) -> None:
        self._finish()

    def ahead(self, step: int, microbatches: list[list[int]]) -> None:
        """Lets the workers load microbatches that will be needed soon."""
        self._ask(step, microbatches, False)

    def get(self, step: int, microbatches: list[list[int]]) -> list[Any]:
        """What the microbatches of a step are, in their order. Those that were not foreseen are loaded first."""
        keys = [(step, m[0]) for m in microbatches]
        if step > self._step:
            self._step = step
            self._asked = {k: w for k, w in self._asked.items() if k[0] >= step}
            self._done = {k: v for k, v in self._done.items() if k[0] >= step}
        self._receive(0)
        self.unforeseen = 0.0
        if any(k not in self._done for k in keys):
            begun = time.monotonic()
            strange = [k for k in keys if k not in self._done and k not in self._asked]
            self._ask(step, [m for k, m in zip(keys, microbatches) if k not in self._done], True)
            while any(k not in self._done for k in keys):
                if not self._receive(self._timeout * 1000 or None):
                    raise Error(f"the workers of the loader gave no data for {self._timeout:g} s: raise timeout, or leave it out")
                if strange and all(k in self._done for k in strange):
                    self.unforeseen, strange = time.monotonic() - begun, []
        found = [self._done.pop(k) for k in keys]
        for value in found:
            if isinstance(value, Error):
                raise value
        return found

    def _ask(self, step: int, microbatches: list[list[int]], now: bool) -> None:
        tasks: list[list[Any]] = [[] for _ in self._sockets]
        load = [0] * len(tasks)
        for w in self._asked.values():
            load[w] += 1
        for m in microbatches:
            key = (step, m[0])
            if key in self._done:
                continue
            w = self._asked.get(key, -1)
            if w < 0:
                w = min(range(len(load)), key=load.__getitem__)
                load[w] += 1
                self._asked[key] = w
            tasks[w].append((key, m))
        for w, todo in enumerate(tasks):
            if todo:
                data = pickle.dumps((self._step, now, todo))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the end of a worker is told where it is missed
                    self._sockets[w].sendall(_COMMAND.pack(len(data)) + data)

    def _receive(self, timeout: float | None) -> bool:
        """Takes the results that are there, and waits up to timeout, in ms, for the first."""
        ready = self._poll.poll(timeout)
        for fd, _ in ready:
            w = next(i for i, s in enumerate(self._sockets) if s.fileno() == fd)
            try:
                head, fds, _, _ = socket.recv_fds(self._sockets[w], _RESULT.size, 1)
            except ConnectionResetError:
                head, fds = b"", []
            if not head:
                raise self._died(w)
            step, first, failed, length = _RESULT.unpack(head)
            try:
                if self._asked.pop((step, first), None) is None:
                    continue
                value = _unpack(fds[0], length)
                if failed:
                    line, trace = value.split("\n", 1)
                    value = Error(f"{line} (in worker {w} of the loader)\n\n{trace}")
                self._done[step, first] = value
            finally:
                for d in fds:
                    os.close(d)
        return bool(ready)

    def _died(self, w: int) -> Error:
        process = self._processes[w]
        process.join(2)
        code = process.exitcode
        if code is None or code >= 0:
            return Error(f"worker {w} of the loader has ended with status {code}: a dataset must not end its process")
        name = signal.Signals(-code).name
        return Error(
            f"worker {w} of the loader was killed by {name}: with too little memory, use a smaller num_workers or microbatch"
        )


class _Init:
    """Calls a function with the number of the worker."""

    def __init__(self, init: Callable[[int], None], worker: int) -> None:
        self._init, self._worker = init, worker

    def __call__(self) -> None:
        self._init(self._worker)


def _closer(pool: weakref.ref[Pool]) -> Callable[[], None]:
    def forked() -> None:
        p = pool()
        if p is not None:
            for s in p._sockets:
                s.close()

    return forked


def _stop(pid: int, sockets: list[socket.socket], processes: list[Any]) -> None:
    if os.getpid() != pid:
        return
    for s in sockets:
        s.close()
    for p in processes:
        p.join(2)
        if p.is_alive():
            p.kill()
            p.join()
        p.close()
