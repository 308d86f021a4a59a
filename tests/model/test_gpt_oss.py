"""gpt-oss as it is published: experts of MXFP4, everything else of a wider type."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from emel.kernel.features import available_routes
from model.conformance import Runner
from model.reference_error import IDS, reference_of, total_error
from model.tiny_experts import tiny_gpt_oss
from model.tiny_models import write_tiny_model
from reference.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path


def test_logits_of_mxfp4_experts_are_those_of_the_reference(tmp_path: Path) -> None:
    model = tiny_gpt_oss()
    wide = {name: shape for name, shape in model.matrices.items() if "_exps" not in name}
    experts = {name: shape for name, shape in model.matrices.items() if "_exps" in name}
    path = tmp_path / "gpt-oss.gguf"
    write_tiny_model(path, replace(model, matrices=experts, plain=model.plain | wide), "MXFP4")
    expected = reference_of(Weights(path), IDS)
    with Runner(path) as runner:
        logits = runner.logits(IDS)
        assert total_error(logits, expected) < 0.002
        assert np.array_equal(runner.logits(IDS, chunk=7), logits)
    for isa in available_routes():
        with Runner(path, isa=isa, n_threads=3) as runner:
            assert np.array_equal(runner.logits(IDS), logits), isa
