"""The compute thread: what it is asked to do waits in a mailbox, and it does that between two steps of the wave.

1. Putting something in never waits: finalizers and signal handlers may use a SimpleQueue in the midst of anything.
2. The thread starts with the first thing it is asked, and sleeps whenever there is nothing to do.
3. While it sleeps it holds nothing but the mailbox, so that a model which nobody holds is collected. The mailbox is
   closed then, at the end of the interpreter, and by `close`; the thread ends after the step that runs.
4. What is put in later is done by whoever put it in: by then it can only find out that the model is closed.
5. An action or a step that raises, where none should, ends it as `close` does: nobody waits for a thread that is gone.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Worker(Protocol):
    """Whose steps the thread makes."""

    def work(self) -> bool:
        """One step; False when there was nothing to do."""

    def stop(self) -> None:
        """Ends what is left: nothing will be done any more."""


class Mailbox:
    """Actions for one worker, and the thread that takes them."""

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_served = False  # by a thread of its own
        self._is_over = threading.Event()  # where there was none
        self._process = os.getpid()
        self.is_closed = False
        self.has_stopped = False

    def bind(self, worker: Worker) -> None:
        """Whom it is for; it ends with the worker, or the interpreter, unless it is closed before."""
        self._worker = weakref.ref(worker)
        weakref.finalize(worker, self._end).atexit = False
        _OPEN.add(self)

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread that makes the steps."""
        return self._thread is threading.current_thread()

    @property
    def has_forked(self) -> bool:
        """Whether this process is a fork of the one with the thread."""
        return self._process != os.getpid()

    def put(self, action: Callable[[], object]) -> None:
        """Has the thread do something; returns at once."""
        self._actions.put(action)
        if self.has_stopped:
            self._drain()
        elif self._thread is None:
            self._start()

    def close(self) -> None:
        """Ends the thread after the step that runs, with all that was put in before; harmless when repeated."""
        self._end()
        if self.is_own_thread:
            return
        with self._starting:
            thread, is_unused = self._thread, self._thread is None and not self.has_stopped
            if is_unused:
                self._thread = threading.current_thread()  # nobody else stops it meanwhile, or starts a thread
        if is_unused:
            self._stop_unused()
        elif thread is not None and not self.has_forked:
            if self._is_served:
                thread.join()
            else:
                self._is_over.wait()

    def _stop_unused(self) -> None:
        try:
            worker = self._worker()
            if worker is not None:
                _stop(self, worker)
        finally:
            self.has_stopped, self._thread = True, None
            self._is_over.set()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self.has_stopped:
                thread = threading.Thread(target=_serve, args=(self, self._worker), name="emel-compute", daemon=True)
                self._thread, self._is_served = thread, True  # before it runs: it asks whether it is this one
                try:
                    thread.start()
                except BaseException:
                    self._thread, self._is_served = None, False
                    raise

    def is_served_here(self) -> bool:
        """Whether this is the thread, once it is settled: one that began while its start was interrupted is not."""
        with self._starting:
            return self.is_own_thread

    def _end(self) -> None:
        self.is_closed = True
        self._actions.put(_nothing)

    def take(self) -> None:
        """Waits for an action and does it."""
        self._actions.get()()

    def _drain(self) -> None:
        try:
            while True:
                self._actions.get_nowait()()
        except Empty:
            return

    def do_all(self) -> None:
        """Does what is there."""
        if not self._actions.empty():
            self._drain()


def _nothing() -> None:
    """Wakes the thread."""


def _stop(mailbox: Mailbox, worker: Worker) -> None:
    try:
        mailbox.do_all()
    finally:
        worker.stop()
        mailbox.has_stopped = True
        mailbox.do_all()


def _serve(mailbox: Mailbox, reference: weakref.ref[Worker]) -> None:
    """The thread: actions and steps by turns."""
    if not mailbox.is_served_here():
        return
    while not mailbox.has_stopped:
        try:
            mailbox.take()
            worker = reference()
            if worker is None:
                return
            mailbox.do_all()
            while not mailbox.is_closed and worker.work():
                mailbox.do_all()
        except BaseException:
            mailbox.is_closed = True
            raise
        finally:
            worker = reference()
            if worker is not None and mailbox.is_closed:
                _stop(mailbox, worker)
            del worker


_OPEN: weakref.WeakSet[Mailbox] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that computes while the interpreter goes away would find its memory gone."""
    for mailbox in list(_OPEN):
        mailbox.close()
