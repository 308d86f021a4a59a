"""Text: tokenizers, chat templates, sampling, the renderer, and the generator machines over them."""
