"""How well a model predicts a text, and how near its logits are to a reference's."""
