"""LangChain with a server of EMEL, through its class for OpenAI's endpoints.

emel serve
pip install langchain-openai
python examples/langchain_chat.py [http://127.0.0.1:8080/v1]
"""

from __future__ import annotations

import sys

from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI


def main(url: str = "http://127.0.0.1:8080/v1") -> None:
    """Streams an answer through a chain."""
    model = ChatOpenAI(model="any", base_url=url, api_key="none", temperature=0, max_tokens=64)
    prompt = ChatPromptTemplate.from_messages([("system", "Answer in one sentence."), ("user", "{question}")])
    for part in (prompt | model).stream({"question": "What is the capital of France?"}):
        print(part.content, end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
