"""The suites of `emel bench`, one line each: a module with `configure(parser)` and `run(arguments) -> exit code`.

Every one of these modules is imported to show the options: keep NumPy and the engine inside `run`.
"""

from __future__ import annotations

SUITES = {
    "generation": ("emel.bench.generation_command", "prompts read, text written, cold start; --compare with llama.cpp"),
}
