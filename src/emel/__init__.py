"""EMEL runs GGUF language models on CPUs."""
