"""Words that people bring along from llama.cpp, ollama and vLLM, and what to type here instead.

argparse says of llama.cpp's `-ngl 99` that 'gl' is no whole number, which is true of `-n gl` and no help, and takes
`-fa` for `-f a`. So these words are refused before it sees them, each where it is no flag of the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

_NO_GPU = "leave it out: EMEL computes on CPUs alone"
_NO_BATCH = "leave it out: EMEL chooses how much of a prompt is computed at a time, and no answer depends on it"
_NO_MMAP = "leave it out; --memory AMOUNT says what the model may take"
_NO_VISION = "leave it out: EMEL runs models of text alone"
_ALWAYS = "leave it out: it is always so"
_NEVER_SHIFTED = "leave it out: a context is never shifted; -c makes it longer"
_LEAVE_OUT = "leave it out: EMEL has no such choice"

# Flags of llama.cpp's tools and of vLLM, several with spaces between, and the hint for them.
_FLAGS = {
    "-ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -mg --main-gpu -dev --device": _NO_GPU,
    "-nkvo --no-kv-offload -ncmoe --n-cpu-moe -cmoe --cpu-moe -ot --override-tensor --op-offload": _NO_GPU,
    "--gpu-memory-utilization --tensor-parallel-size --pipeline-parallel-size --enforce-eager": _NO_GPU,
    "--mmap --no-mmap --mlock -fit --fit": _NO_MMAP,
    "-b --batch-size -ub --ubatch-size --max-num-batched-tokens": _NO_BATCH,
    "-tb --threads-batch": "-t is the number of threads for prompts and for answers",
    "-fa --flash-attn -cb --cont-batching --enable-prefix-caching --enable-chunked-prefill": _ALWAYS,
    "--jinja --slots --props --metrics --embedding --embeddings --no-warmup --no-display-prompt": _ALWAYS,
    "--warmup --numa --prio --poll -C --cpu-mask --no-jinja --log-disable --perf --no-perf": _LEAVE_OUT,
    "-e --escape --no-escape": "leave it out: texts are taken as the shell gives them, such as $'two\\nlines'",
    "--keep --context-shift --no-context-shift -gan -gaw --grp-attn-n --grp-attn-w": _NEVER_SHIFTED,
    "--mmproj -mmu --mmproj-url --image --audio": _NO_VISION,
    "-ctk --cache-type-k -ctv --cache-type-v --kv-cache-dtype": "--kv-type f16, f32 or q8_0 is for keys and values",
    "--dtype": "leave it out: weights are what the file has, and emel quantize makes smaller ones",
    "-cnv --conversation -i --interactive -if --interactive-first": "emel chat is the conversation",
    "-no-cnv --no-conversation": "--raw continues a text without the chat template",
    "-st --single-turn": "leave it out: emel run answers once",
    "-co --color --colors": "leave it out: there is colour on a terminal, unless NO_COLOR is set",
    "-hff --hf-file": "-hf OWNER/REPO:FILE.gguf names a file",
    "-hft --hf-token": "the environment has it: HF_TOKEN",
    "-mu --model-url": "fetch the file and name its path, or use -hf OWNER/REPO[:QUANT]",
    "-v --verbose --log-verbose --verbose-prompt": "--trace FILE records every step; EMEL_DEBUG=1 shows tracebacks",
    "--rope-freq-base --rope-freq-scale --rope-scaling --rope-scale --yarn-orig-ctx": (
        "--override-kv sets metadata, such as llama.rope.freq_base=float:1000000"
    ),
    "--draft --draft-max --draft-min --draft-n --draft-p-min -ngld --spec-type": (
        "leave it out: how much is guessed follows from how often guesses came true; --speculation off makes none"
    ),
    "--max-model-len --num-ctx --n-ctx --context-length": "-c N is the length of the context",
    "--max-num-seqs": "--parallel N is how many requests run at a time",
    "--served-model-name": "--alias NAME, or NAME=MODEL",
    "--max-new-tokens --num-predict": "-n N is the most tokens to write",
    "--repetition-penalty": "--repeat-penalty is its name here",
    "--format --response-format": "--json-schema SCHEMA, where {} is any object",
    "--lookup-cache-static -lcs --lookup-cache-dynamic -lcd --trust-remote-code": _LEAVE_OUT,
}

_COMMANDS = {
    "version": "emel --version",
    "help": "emel --help, or emel COMMAND --help",
    "list ls models": "emel pull --list shows the built-in models, and which are here",
    "show info gguf": "emel inspect MODEL",
    "generate complete completion cli ask prompt": 'emel run "..."',
    "ps": "a server's /slots and /live show what runs",
    "rm remove delete": "delete the file; emel pull NAME says where it is",
    "download fetch get": "emel pull NAME or hf:owner/repo[:quant]",
    "embed embedding embeddings": "emel serve answers /v1/embeddings; in Python: emel.load(...).embed(texts)",
    "create import": "any .gguf file is a model by its path; emel convert makes one of a Hugging Face directory",
    "server": "emel serve",
    "benchmark": "emel bench SUITE",
    "eval ppl": "emel perplexity MODEL FILE",
}


def flag_hint(words: Sequence[str], known: Container[str]) -> tuple[str, str] | None:
    """The first word that is a flag of another engine and none of `known`, and what to do instead."""
    hints = _by_word(_FLAGS)
    for word in words:
        if word == "--":
            break
        flag = word.partition("=")[0]
        if flag in hints and flag not in known:
            return flag, hints[flag]
    return None


def command_hint(word: str) -> str | None:
    """What to type in place of another engine's command."""
    return _by_word(_COMMANDS).get(word)


def _by_word(table: dict[str, str]) -> dict[str, str]:
    return {word: hint for words, hint in table.items() for word in words.split()}
