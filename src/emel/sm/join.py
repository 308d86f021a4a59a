"""The join of calls that run on other threads: `wait` returns only when none of them will touch the group again."""

from __future__ import annotations

import threading


class JoinGroup:
    """Counts calls that were started and not ended; has one owner, which submits and waits.

    Ended calls only pop from `_pending`, one atomic operation. The owner holds the token at its bottom while it starts
    calls, so the count cannot reach zero early; whoever pops that token last either is the owner or wakes it.
    """

    __slots__ = ("_errors", "_is_accepted", "_n_started", "_pending", "_wake")

    _OWNERS = True
    _CALLS = False

    def __init__(self) -> None:
        self._pending = [self._OWNERS]
        self._wake = threading.Lock()  # held, but for the moment from the last end to the owner's waking
        self._wake.acquire()
        self._is_accepted = True
        self._n_started = 0
        self._errors: dict[int, BaseException] = {}

    def start_one(self) -> int:
        """Counts a call in; its number in this round. Before the call can end."""
        index = self._n_started
        self._n_started += 1
        self._pending.append(self._CALLS)
        return index

    def refuse(self) -> None:
        """Notes that a call of this round was not taken."""
        self._is_accepted = False

    def complete(self, index: int, error: BaseException | None) -> None:
        """Counts a call out. The pop, or the release that follows the last one, is the last touch of the group."""
        if error is not None:
            self._errors[index] = error
        if self._pending.pop():
            self._wake.release()

    def wait(self) -> bool:
        """Blocks until every started call has ended; whether none was refused. Ready for the next round then.

        Raises what the earliest call that raised raised. An interrupt is raised when all have ended, not before.
        """
        interrupt: BaseException | None = None
        if not self._pending.pop():
            while True:
                try:
                    self._wake.acquire()
                except BaseException as error:  # the calls may still use what the caller would free
                    interrupt = error
                else:
                    break
        is_accepted, errors = self._is_accepted, self._errors
        self._is_accepted, self._errors, self._n_started = True, {}, 0
        self._pending.append(self._OWNERS)
        if interrupt is not None:
            raise interrupt
        try:
            if errors:
                raise errors[min(errors)]
        finally:
            errors.clear()  # an error knows this frame by its traceback
        return is_accepted
