"""What the server allows: one table of limits and where it listens."""

from __future__ import annotations

from emel.lazy_dataclasses import dataclass

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of a server. Times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: tuple[str, ...] = ()
    """Any of them opens every endpoint but /health; none: everybody may."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call; "*" is all. None: CORS is off."""
    max_body_bytes: int = 10 << 20
    body_seconds: float = 60.0
    """What a client has to send a body; then it gets 408."""
    stalled_seconds: float = 120.0
    """Time in which a client must read some of what it was sent; then its connection is given up."""
    max_waiting: int = 64
    """Requests that wait for a lane; further ones get 429."""
    request_timeout: float | None = None
    """From a request's arrival to its end; then it ends with 504, or in the stream with an error."""
    ping_seconds: float = 15.0
    """Silence of a stream after which a comment keeps the connection."""
    drain_seconds: float = 30.0
    """What running requests have after SIGTERM."""
    idle_unload_seconds: float | None = None
    """Time without requests after which a model is unloaded; None: never."""
    tls_key: str | None = None
    tls_certificate: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether others than this machine can reach it."""
        return self.host not in LOOPBACK and not self.is_at_path

    @property
    def is_at_path(self) -> bool:
        """Whether it listens at a Unix socket."""
        return self.host.endswith(".sock")
