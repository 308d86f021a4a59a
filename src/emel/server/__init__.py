"""The HTTP server: OpenAI's endpoints, and what is needed to run them for others (extra `emel[server]`).

`create_app(models, settings)` is an ASGI application; `emel serve` runs it.
"""
