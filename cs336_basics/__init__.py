"""A decoder-only Transformer built from ``Parameter`` and ``Module`` alone (CS336 assignment 1, section 3)."""
