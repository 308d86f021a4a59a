from __future__ import annotations

import pytest

from emel.sm import Task, UnfinishedTask
from emel.sm.task import ACCEPTED, REJECTED


def test_task_that_has_not_finished_has_no_result() -> None:
    task = Task("DownloadMachine's Begin")
    assert not task.done
    with pytest.raises(UnfinishedTask, match=r"^DownloadMachine's Begin has not finished: .* cannot be read yet"):
        task.result()


@pytest.mark.parametrize("result", [True, False])
def test_task_gives_its_result_as_often_as_asked(result: bool) -> None:
    task = Task()
    task.finish(result)
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


def test_task_ends_once() -> None:
    for task in (Task.finished(True), Task.failed(ValueError())):
        with pytest.raises(RuntimeError, match="finished already: a task ends once"):
            task.finish(True)
        with pytest.raises(RuntimeError, match="finished already: a task ends once"):
            task.fail(ValueError())


def test_shared_tasks_hold_what_they_say() -> None:
    assert ACCEPTED.result() is True
    assert REJECTED.result() is False
