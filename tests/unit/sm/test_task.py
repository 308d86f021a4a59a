from __future__ import annotations

import sys
import threading

import pytest

from emel.sm import Task, UnfinishedTask
from emel.sm.task import ACCEPTED, REJECTED, Promise


def test_task_that_has_not_finished_has_no_result() -> None:
    promise = Promise("DownloadMachine's Begin")
    task = Task(promise)
    assert (task.done, task.label, task.wait(0.01)) == (False, "DownloadMachine's Begin", False)
    with pytest.raises(UnfinishedTask, match=r"^DownloadMachine's Begin has not finished: .* cannot be read yet"):
        task.result()
    promise.finish(True)
    assert (task.done, task.wait(), task.result()) == (True, True, True)


def test_dropping_an_unfinished_task_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: seen.append(problem.exc_value))
    promise = Promise("DownloadMachine's Begin")
    task = Task(promise)
    del task
    assert [str(each) for each in seen] == [
        "the task of DownloadMachine's Begin was dropped before it finished: wait() for it"
    ]
    assert isinstance(seen[0], UnfinishedTask)
    promise.finish(True)
    task = Task(promise)
    del task
    assert len(seen) == 1


def test_task_ends_for_every_thread_that_waits() -> None:
    promise = Promise()
    task = Task(promise)
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(task.wait(10) and task.result())) for _ in range(3)]
    for thread in threads:
        thread.start()
    promise.finish(True)
    for thread in threads:
        thread.join()
    assert results == [True, True, True]


@pytest.mark.parametrize("result", [True, False])
def test_task_gives_its_result_as_often_as_asked(result: bool) -> None:
    task = Task.finished(result)
    assert task.done
    assert [task.result(), task.result()] == [result, result]


def test_task_raises_its_error_as_often_as_asked() -> None:
    error = ValueError("broken")
    task = Task.failed(error)
    assert task.done
    for _ in range(2):
        with pytest.raises(ValueError, match="broken") as caught:
            task.result()
        assert caught.value is error


def test_promise_ends_once() -> None:
    finished, failed = Promise("one"), Promise("other")
    finished.finish(True)
    failed.fail(ValueError())
    for promise in (finished, failed):
        with pytest.raises(RuntimeError, match="finished already: a task ends once"):
            promise.finish(True)
        with pytest.raises(RuntimeError, match="finished already: a task ends once"):
            promise.fail(ValueError())


def test_shared_tasks_hold_what_they_say() -> None:
    assert ACCEPTED.result() is True
    assert REJECTED.result() is False
