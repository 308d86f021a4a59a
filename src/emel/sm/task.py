"""The outcome of an asynchronous dispatch: the policy keeps a `Promise`, the caller a `Task`."""

from __future__ import annotations

import threading

from emel.sm.errors import UnfinishedTask


class Promise:
    """What a policy keeps of a run it has taken on: it ends once, with a result or an error, on any thread."""

    __slots__ = ("_error", "_result", "_unfinished", "label")

    def __init__(self, label: str = "a run") -> None:
        self.label = label
        self._result = False
        self._error: Exception | None = None
        self._unfinished = threading.Lock()  # held until the end, so that threads can wait for it
        self._unfinished.acquire()

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return not self._unfinished.locked()

    def finish(self, result: bool) -> None:
        """Ends with a result; RuntimeError when it has ended already."""
        self._expect_unfinished()
        self._result = result
        self._unfinished.release()

    def fail(self, error: Exception) -> None:
        """Ends with an error that `result()` raises; RuntimeError when it has ended already."""
        self._expect_unfinished()
        self._error = error
        self._unfinished.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the run has ended, or for `timeout` seconds; whether it has."""
        if self._unfinished.acquire(timeout=-1 if timeout is None else timeout):
            self._unfinished.release()
            return True
        return False

    def result(self) -> bool:
        """See `Task.result`."""
        if self._unfinished.locked():
            raise UnfinishedTask(f"{self.label} has not finished: its result cannot be read yet; wait() for it first")
        if self._error is not None:
            raise self._error
        return self._result

    def _expect_unfinished(self) -> None:
        if self.done:
            raise RuntimeError(f"{self.label} is finished already: a task ends once")


class Task:
    """The caller's end; `result()` may be read any number of times once the run has ended.

    A task is not to be dropped before: what it would have said is lost, so Python's unraisable hook is told.
    """

    __slots__ = ("_promise",)

    def __init__(self, promise: Promise) -> None:
        self._promise = promise

    @classmethod
    def finished(cls, result: bool) -> Task:
        """A task that is already complete."""
        promise = Promise()
        promise.finish(result)
        return cls(promise)

    @classmethod
    def failed(cls, error: Exception) -> Task:
        """A task that is already complete, with an error."""
        promise = Promise()
        promise.fail(error)
        return cls(promise)

    @property
    def label(self) -> str:
        """What the task is of."""
        return self._promise.label

    @property
    def done(self) -> bool:
        """Whether `result()` may be read."""
        return self._promise.done

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the run has ended, or for `timeout` seconds; whether it has.

        Under the inline, fifo and external-completion policies a task is complete when it is returned.
        """
        return self._promise.wait(timeout)

    def result(self) -> bool:
        """True: accepted, and no error. False: rejected by the policy, or the run came to rest in a FAILED state.

        Raises what the machine raised (UnexpectedEvent, an effect's exception), or UnfinishedTask.
        """
        return self._promise.result()

    def __del__(self) -> None:
        if not self._promise.done:
            raise UnfinishedTask(f"the task of {self.label} was dropped before it finished: wait() for it")


ACCEPTED = Task.finished(True)
REJECTED = Task.finished(False)
