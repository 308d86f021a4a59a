"""The outcome of an asynchronous dispatch."""

from __future__ import annotations

from emel.sm.errors import UnfinishedTask


class Task:
    """Ends once, with a result or an error; `result()` may be read any number of times after that."""

    __slots__ = ("_error", "_result", "label")

    def __init__(self, label: str = "task") -> None:
        self.label = label
        self._result: bool | None = None
        self._error: Exception | None = None

    @classmethod
    def finished(cls, result: bool) -> Task:
        """A task that is already complete."""
        task = cls()
        task.finish(result)
        return task

    @classmethod
    def failed(cls, error: Exception) -> Task:
        """A task that is already complete, with an error."""
        task = cls()
        task.fail(error)
        return task

    @property
    def done(self) -> bool:
        """Whether `result()` may be read."""
        return self._result is not None or self._error is not None

    def finish(self, result: bool) -> None:
        """Completes the task; only its policy calls this, once."""
        self._expect_unfinished()
        self._result = result

    def fail(self, error: Exception) -> None:
        """Completes the task with an error that `result()` raises; only its policy calls this, once."""
        self._expect_unfinished()
        self._error = error

    def result(self) -> bool:
        """True: accepted, and no error. False: rejected by the policy, or the run came to rest in a FAILED state.

        Raises what the machine raised (UnexpectedEvent, an effect's exception), or UnfinishedTask.
        """
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise UnfinishedTask(f"{self.label} has not finished: its result cannot be read yet; wait until it is done")
        return self._result

    def _expect_unfinished(self) -> None:
        if self.done:
            raise RuntimeError(f"{self.label} is finished already: a task ends once")


ACCEPTED = Task.finished(True)
REJECTED = Task.finished(False)
