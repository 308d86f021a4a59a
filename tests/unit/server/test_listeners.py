"""Where a server listens, and what is there already."""

from __future__ import annotations

import socket
import stat
from typing import TYPE_CHECKING

import pytest

from emel.errors import EmelError
from emel.server.listeners import listening
from emel.server.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def at(path: Path) -> Settings:
    return Settings(host=str(path))


def test_only_this_user_may_connect_to_a_path_and_the_end_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    with listening(at(path)) as (bound, url):
        assert (url, bound.getsockname()) == (str(path), str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_a_path_where_somebody_answers_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    with listening(at(path)) as (bound, _):
        bound.listen()
        with pytest.raises(EmelError, match=r"cannot listen at '.*e\.sock': another server does"), listening(at(path)):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with listening(at(path)) as (bound, _):
        bound.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_path_that_another_took_meanwhile_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    with listening(at(path)):
        (tmp_path / "other").touch()
        (tmp_path / "other").replace(path)
    assert path.is_file()


def test_what_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "file.sock"
    path.write_text("mine")
    with pytest.raises(EmelError, match=r"file\.sock': it is there and no socket"), listening(at(path)):
        pass
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["nodir/e.sock", f"{'x' * 200}.sock"])
def test_a_path_that_cannot_be_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(EmelError, match="cannot listen at") as refusal, listening(at(tmp_path / name)):
        pass
    assert refusal.value.hint == "--host takes a path to write to"


@pytest.mark.parametrize("host", ["300.1.1.1", "8.8.8.8", "127.0.0.1:80", "x y"])
def test_what_is_no_address_of_this_machine_is_told(host: str) -> None:
    with (
        pytest.raises(EmelError, match=rf"^'{host}' is no address to listen at: [^()]+$"),
        listening(Settings(host=host)),
    ):
        pass


def test_a_taken_port_is_told() -> None:
    with listening(Settings(port=0)) as (bound, url):
        port = bound.getsockname()[1]
        assert url == f"http://127.0.0.1:{port}"
        with pytest.raises(EmelError, match=f"port {port} of 127.0.0.1 is taken"), listening(Settings(port=port)):
            pass
