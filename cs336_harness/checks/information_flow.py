"""Information flow: what may reach which logits, and what must."""
