"""The anthropic package with a server of EMEL: a streamed message, a tool.

emel serve
pip install anthropic
python examples/anthropic_client.py [http://127.0.0.1:8080]
"""

from __future__ import annotations

import sys
from typing import Any

from anthropic import Anthropic

# The package's newer versions have no argument for what EMEL takes besides, such as the temperature.
SAMPLING = {"temperature": 0}
WEATHER: Any = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 40}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def main(url: str = "http://127.0.0.1:8080") -> None:
    """Asks twice. The address is without /v1."""
    client = Anthropic(base_url=url, api_key="not needed unless the server was started with one")
    question: Any = [{"role": "user", "content": "What is the capital of France?"}]
    with client.messages.stream(model="any", messages=question, max_tokens=64, extra_body=SAMPLING) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
    print()
    message = client.messages.create(
        model="any",
        messages=[{"role": "user", "content": "Is it raining in Paris?"}],
        tools=[WEATHER],
        tool_choice={"type": "any"},
        max_tokens=64,
        extra_body=SAMPLING,
    )
    for block in message.content:
        if block.type == "tool_use":
            print(block.name, block.input)


if __name__ == "__main__":
    main(*sys.argv[1:])
