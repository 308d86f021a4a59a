"""KV memory: reference-counted blocks of 16 tokens, block tables, sequences."""
