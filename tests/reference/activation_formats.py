"""What a format of the activations costs: the reference forward pass with every matrix input rounded to the format.

Nothing else is rounded, so this is a floor of the error of an engine with that format, whatever its kernels do.

    python tests/reference/activation_formats.py MODEL.gguf TOKEN_IDS.json      (a JSON list of token ids)
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from reference.error import relative_rms_error
from reference.llama import forward
from reference.weights import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Name, elements that share a scale, largest magnitude. 127 * 254 is one int8 plane and a second for its remainder.
FORMATS = (
    ("int8, blocks of 32", 32, 127),
    ("int8, blocks of 16", 16, 127),
    ("10 bits, blocks of 32", 32, 511),
    ("12 bits, blocks of 32", 32, 2047),
    ("int8 + int8 remainder, blocks of 32", 32, 127 * 254),
)


class RoundedActivations(Weights):
    """The file's weights; what multiplies a matrix is rounded to `largest` steps either side of zero in each block."""

    n_block = 32
    largest = 127

    def product(self, name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        blocks = x.reshape(len(x), -1, self.n_block)
        scale = np.abs(blocks).max(axis=-1, keepdims=True) / self.largest
        scale[scale == 0.0] = 1.0
        return super().product(name, (np.rint(blocks / scale) * scale).reshape(x.shape))


def main(model: str, token_ids: str) -> None:
    """Prints, for each format, the relative RMS error of the logits over the positions of the text."""
    ids = json.loads(Path(token_ids).read_text(encoding="utf-8"))
    expected = forward(Weights(model), ids)
    rounded = RoundedActivations(model)
    print(f"{'format of activations':<38}{'median':>9}{'largest':>9}{'over 1 %':>10}{'top-1 equal':>13}")
    for name, rounded.n_block, rounded.largest in FORMATS:
        logits = forward(rounded, ids)
        errors = relative_rms_error(logits, expected)
        same = (logits.argmax(axis=-1) == expected.argmax(axis=-1)).mean()
        print(f"{name:<38}{np.median(errors):>9.3%}{errors.max():>9.3%}{(errors > 0.01).sum():>10}{same:>13.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
