"""The openai package with a server of EMEL: a streamed chat, an object of a schema, a tool.

emel serve
pip install openai
python examples/openai_client.py [http://127.0.0.1:8080/v1]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from openai import OpenAI

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "country": {"type": "string", "maxLength": 40}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 40}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def main(url: str = "http://127.0.0.1:8080/v1") -> None:
    """Asks three times."""
    client = OpenAI(base_url=url, api_key="not needed unless the server was started with one")
    for chunk in client.chat.completions.create(
        model="any", messages=QUESTION, stream=True, max_tokens=64, temperature=0
    ):
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    answer = client.chat.completions.create(model="any", messages=QUESTION, response_format=form, temperature=0)
    print(json.loads(answer.choices[0].message.content or ""))
    called = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": "Is it raining in Paris?"}],
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
    )
    for call in called.choices[0].message.tool_calls or ():
        print(call)


if __name__ == "__main__":
    main(*sys.argv[1:])
