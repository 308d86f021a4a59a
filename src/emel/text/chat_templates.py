"""Templates by name, for files that bring none and for those who ask for one: the formats as their makers show them.

None writes a begin token: the tokenizer puts exactly one. Sources: ChatML
(https://github.com/openai/openai-python/blob/v0.28.1/chatml.md), Llama 2 and 3 (https://www.llama.com/docs), Gemma
(https://ai.google.dev/gemma/docs/core/prompt-structure), Phi-3 and Zephyr (their model cards), Mistral
(https://docs.mistral.ai), Vicuna (https://github.com/lm-sys/FastChat).
"""

from __future__ import annotations

_EACH = "{% for message in messages %}"
_END = "{% endfor %}"
_ASK = "{% if add_generation_prompt %}"
_FI = "{% endif %}"
_TEXT = "message['content']"
# Formats without a place for a system message refuse it; chat_policy.py then folds it into the user's first.
_NO_SYSTEM = "{% if message['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}"

TEMPLATES: dict[str, str] = {
    "chatml": (
        f"{_EACH}{{{{ '<|im_start|>' + message['role'] + '\n' + {_TEXT} + '<|im_end|>\n' }}}}{_END}"
        f"{_ASK}{{{{ '<|im_start|>assistant\n' }}}}{_FI}"
    ),
    "llama2": (
        "{% set ns = namespace(system='') %}"
        f"{_EACH}{{% if message['role'] == 'system' %}}"
        f"{{% set ns.system = '<<SYS>>\n' + {_TEXT} + '\n<</SYS>>\n\n' %}}"
        "{% elif message['role'] == 'assistant' %}"
        f"{{{{ ' ' + {_TEXT} | trim + ' ' + eos_token }}}}"
        "{% else %}"
        f"{{{{ bos_token + '[INST] ' + ns.system + {_TEXT} | trim + ' [/INST]' }}}}{{% set ns.system = '' %}}"
        f"{_FI}{_END}"
    ),
    "llama3": (
        f"{_EACH}{{{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + {_TEXT} | trim + "
        f"'<|eot_id|>' }}}}{_END}"
        f"{_ASK}{{{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}}}{_FI}"
    ),
    "gemma": (
        f"{_EACH}{_NO_SYSTEM}{{{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\n' + "
        f"{_TEXT} | trim + '<end_of_turn>\n' }}}}{_END}"
        f"{_ASK}{{{{ '<start_of_turn>model\n' }}}}{_FI}"
    ),
    "phi3": (
        f"{_EACH}{{{{ '<|' + message['role'] + '|>\n' + {_TEXT} + '<|end|>\n' }}}}{_END}"
        f"{_ASK}{{{{ '<|assistant|>\n' }}}}{_FI}"
    ),
    "zephyr": (
        f"{_EACH}{{{{ '<|' + message['role'] + '|>\n' + {_TEXT} + eos_token + '\n' }}}}{_END}"
        f"{_ASK}{{{{ '<|assistant|>\n' }}}}{_FI}"
    ),
    "mistral": (
        f"{_EACH}{_NO_SYSTEM}{{% if message['role'] == 'assistant' %}}{{{{ ' ' + {_TEXT} + eos_token }}}}"
        f"{{% else %}}{{{{ '[INST] ' + {_TEXT} + ' [/INST]' }}}}{_FI}{_END}"
    ),
    "vicuna": (
        f"{_EACH}{{% if message['role'] == 'system' %}}{{{{ {_TEXT} + '\n\n' }}}}"
        f"{{% elif message['role'] == 'assistant' %}}{{{{ 'ASSISTANT: ' + {_TEXT} + eos_token + '\n' }}}}"
        f"{{% else %}}{{{{ 'USER: ' + {_TEXT} + '\n' }}}}{_FI}{_END}"
        f"{_ASK}ASSISTANT:{_FI}"
    ),
}
"""Name -> Jinja source."""

# Tokens whose presence in a vocabulary says which format a model without a template was trained on.
SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("chatml", ("<|im_start|>", "<|im_end|>")),
    ("llama3", ("<|start_header_id|>", "<|eot_id|>")),
    ("gemma", ("<start_of_turn>", "<end_of_turn>")),
    ("phi3", ("<|user|>", "<|assistant|>", "<|end|>")),
    ("mistral", ("[INST]", "[/INST]")),
)
