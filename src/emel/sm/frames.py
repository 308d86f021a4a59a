"""A fixed number of frames for runs that may wait: one more is refused, the pool never grows.

The interpreter allocates the frame of a generator itself; what is held here is the right to have one, so the runs in
flight, and the memory they can take, have a bound that is known beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emel.sm.policies import Runnable

DEFAULT_N_FRAMES = 64


class Frame:
    """One slot; `holder` is the machine whose run has it, None while it is free."""

    __slots__ = ("holder", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self.holder: Runnable | None = None


class FramePool:
    """`n_frames` frames, last in first out; usable from any thread (one list operation takes or gives a frame)."""

    __slots__ = ("_frames", "_free")

    def __init__(self, n_frames: int = DEFAULT_N_FRAMES) -> None:
        if n_frames < 1:
            raise ValueError(f"a frame pool of {n_frames} frames could run nothing: at least 1 is needed")
        self._frames = tuple(Frame(index) for index in range(n_frames))
        self._free = [*reversed(self._frames)]

    @property
    def n_frames(self) -> int:
        """Frames there are."""
        return len(self._frames)

    @property
    def n_free(self) -> int:
        """Frames not taken now."""
        return len(self._free)

    @property
    def holders(self) -> tuple[Runnable, ...]:
        """The machines that have frames now, in the order of the frames."""
        return tuple(frame.holder for frame in self._frames if frame.holder is not None)

    def take(self, holder: Runnable) -> Frame | None:
        """The frame given back last, or None when all are taken."""
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        frame.holder = holder
        return frame

    def give(self, frame: Frame) -> None:
        """Gives a frame back; ValueError for one that is free already or belongs to another pool."""
        if frame.holder is None or self._frames[frame.index % len(self._frames)] is not frame:
            raise ValueError(f"frame {frame.index} was not taken from this pool, or was given back already")
        frame.holder = None
        self._free.append(frame)


FRAMES = FramePool()
