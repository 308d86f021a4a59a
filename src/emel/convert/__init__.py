"""Writes GGUF files: quantised copies of others, and models of Hugging Face directories."""
