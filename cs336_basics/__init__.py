"""A decoder-only Transformer built from ``torch.nn.Parameter`` and ``torch.nn.Module`` alone (CS336 assignment 1, section 3)."""
