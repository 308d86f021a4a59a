"""Where a server listens: an address, or a path that is its own until it ends."""

from __future__ import annotations

import contextlib
import errno
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from emel.errors import EmelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.server.settings import Settings

_ANSWER_SECONDS = 2.0
_ANY_PORT = "--port N takes another, --port 0 any that is free"


@contextlib.contextmanager
def listening(settings: Settings) -> Iterator[tuple[socket.socket, str]]:
    """A socket at the host of the settings, and what to call it; EmelError when there can be none."""
    if settings.is_at_path:
        with _at_path(Path(settings.host)) as bound:
            yield bound, settings.host
        return
    with listener(settings) as bound:
        scheme = "https" if settings.tls_key else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield bound, f"{scheme}://{host}:{bound.getsockname()[1]}"


def listener(settings: Settings) -> socket.socket:
    """Its connections end when a client reads nothing of what it is sent for so long (Linux: tcp(7))."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        found = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise _refused(settings, error) from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1e3 * settings.stalled_seconds))
    return found


def _refused(settings: Settings, error: OSError) -> EmelError:
    host, port = settings.host, settings.port
    reason = _reason(error)
    if error.errno == errno.EADDRINUSE:
        return EmelError(f"port {port} of {host} is taken: {reason}", hint=_ANY_PORT)
    if error.errno in {errno.EACCES, errno.EPERM}:
        return EmelError(f"port {port} of {host} is not allowed: {reason}", hint=_ANY_PORT)
    return EmelError(
        f"{host!r:.100} is no address to listen at: {reason}",
        hint="--host 127.0.0.1 is this machine alone, 0.0.0.0 all that reach it; --port N is the port",
    )


@contextlib.contextmanager
def _at_path(path: Path) -> Iterator[socket.socket]:
    """Only this user may connect. A socket that a server left behind is replaced; one that somebody serves is not."""
    with socket.socket(socket.AF_UNIX) as bound:
        try:
            _make_way(path)
            bound.bind(str(path))
            path.chmod(0o600)  # before it listens, so nobody came in by another mode
            own = path.stat().st_ino
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise EmelError(
                f"cannot listen at {str(path)!r}: {reason}", hint="--host takes a path to write to"
            ) from error
        try:
            yield bound
        finally:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == own:
                    path.unlink()


def _reason(error: OSError) -> str:
    """The system's word for it, without what Python adds."""
    return (error.strerror or str(error)).partition(" (while ")[0].lower()


def _make_way(path: Path) -> None:
    """Removes a socket that nobody answers at; EmelError for whatever else is there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise EmelError(f"cannot listen at {str(path)!r}: it is there and no socket", hint="--host takes another path")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_ANSWER_SECONDS)
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except TimeoutError:  # somebody has it, with many who wait
            pass
    raise EmelError(f"cannot listen at {str(path)!r}: another server does", hint="--host takes another path")
