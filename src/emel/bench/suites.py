"""The suites of `emel bench`, one line each: a module with `configure(parser)` and `run(arguments) -> exit code`.

Every one of these modules is imported to show the options: keep NumPy and the engine inside `run`.
"""

from __future__ import annotations

SUITES = {
    "generation": ("emel.bench.generation_command", "prompts read, text written, cold start; --compare with llama.cpp"),
    "wavefront": (
        "emel.bench.wavefront_command",
        "many sequences at once: rates, latencies; --compare",
    ),
    "one_request": ("emel.bench.one_request", "a request alone against a bare loop of plan runs"),
    "step": ("emel.bench.step", "Python from one plan run of a wave to the next: of a step, of a lane"),
    "prefix": ("emel.bench.prefix", "time to the first token of a prompt whose beginning was computed before"),
    "server": ("emel.bench.server", "how soon the server answers, and what HTTP takes of a token"),
    "speculation": ("emel.bench.speculation", "answers with guesses of what comes next against answers without"),
    "roofline": ("emel.bench.roofline", "the most this machine does: int8 and float32 multiply-adds, reading memory"),
    "kernels": ("emel.bench.kernels", "matrix products of every format, as a share of those roofs"),
    "parallel_matmul": ("emel.bench.parallel_matmul", "products on several lanes against one, bit for bit"),
    "sm": ("emel.bench.sm_command", "one transition of a state machine, against other libraries where installed"),
    "sm_scheduler": ("emel.bench.sm_command", "a dispatch under each policy, fork and join by the number of lanes"),
    "graph_processor": ("emel.bench.sm_command", "the processor as coroutine machine against a plain one"),
    "weight_streaming": ("emel.bench.weight_streaming", "a model larger than its memory, under one hard limit"),
    "decode_wavefront": ("emel.bench.sm_command", "lanes of a wave as one batch against lane after lane, bit for bit"),
}
