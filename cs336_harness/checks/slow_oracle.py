"""The whole model against the slow oracle: logits and the gradient of every weight."""
