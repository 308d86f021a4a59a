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
    "--webui --no-webui --ui --no-ui": "leave it out: the page is always there",
    "--no-slots --no-metrics --no-props --log-file --log-colors --log-timestamps --log-prefix": _LEAVE_OUT,
    "--path --api-prefix --threads-http --props-endpoint --reuse-port": _LEAVE_OUT,
    "--reasoning-format": "a request has it: reasoning_format",
    "-rea --reasoning --reasoning-budget --think": (
        "--chat-template-kwargs '{\"enable_thinking\": false}', or chat_template_kwargs in a request"
    ),
    "--reasoning-parser --tool-call-parser --enable-auto-tool-choice": (
        "leave it out: thoughts and calls are found by the chat template"
    ),
    "-sps --slot-prompt-similarity --cache-reuse -cram --cache-ram -kvu --kv-unified --swa-full": _LEAVE_OUT,
    "--cache-prompt": _ALWAYS,
    "--no-cache-prompt": "a request has it: cache_prompt",
    "--slot-save-path": "in Python: model.save_session",
    "--pooling": "a request has it: pooling",
    "--rerank --reranking": "leave it out: EMEL does not rank",
    "--models-dir --models-preset --models-max": "name the models: emel serve [NAME=]MODEL ..., within --memory",
    "--sleep-idle-seconds --keep-alive": "--idle-unload S unloads a model that nobody used for so long",
    "-to": "--timeout S is the time a request may take",
    "--max-num-queue --max-queued-requests": "--max-waiting N is how many requests wait",
    "--allowed-origins --cors": "--cors-origins ORIGIN[,ORIGIN]",
    "--lookup-cache-static -lcs --lookup-cache-dynamic -lcd --trust-remote-code": _LEAVE_OUT,
}

# What a command answers with is a field of each request to a server: flags of `emel run`, and the field.
_FIELDS = {
    "-n --predict --n-predict --max-tokens": "max_tokens",
    "-s --seed": "seed",
    "--temp --temperature": "temperature",
    "--top-k": "top_k",
    "--top-p": "top_p",
    "--min-p": "min_p",
    "--typical --typical-p": "typical_p",
    "--repeat-penalty": "repeat_penalty",
    "--repeat-last-n": "repeat_last_n",
    "--presence-penalty": "presence_penalty",
    "--frequency-penalty": "frequency_penalty",
    "--mirostat": "mirostat",
    "--samplers --sampler-seq --sampling-seq": "samplers",
    "-l --logit-bias": "logit_bias",
    "--ignore-eos": "ignore_eos",
    "--stop -r --reverse-prompt": "stop",
    "-j --json-schema -jf --json-schema-file": "response_format",
    "--grammar --grammar-file": "grammar",
    "--chat-template-kwargs": "chat_template_kwargs",
    "-p --prompt -f --file -sys --system --system-prompt": "messages",
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


def flag_hint(words: Sequence[str], known: Container[str], *, serves: bool = False) -> tuple[str, str] | None:
    """The first word that is a flag of another engine and none of `known`, and what to do instead.

    serves: of a server, where what an answer depends on belongs in its request.
    """
    hints = _by_word(_FLAGS)
    if serves:
        hints |= {flag: f"it belongs in the request, as {field}" for flag, field in _by_word(_FIELDS).items()}
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
