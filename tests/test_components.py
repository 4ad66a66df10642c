"""CS336's own component tests, under their names, on the subject; and what the snapshots cannot see of a component."""

from cs336_harness.pytest_plugin import judged_by, judged_by_the_rest_of

test_linear = judged_by("components.linear")
test_embedding = judged_by("components.embedding")
test_rmsnorm = judged_by("components.rmsnorm")
test_silu = judged_by("components.silu")
test_swiglu = judged_by("components.swiglu")
test_rope = judged_by("components.rope")
test_softmax = judged_by("components.softmax")
test_scaled_dot_product_attention = judged_by("components.scaled_dot_product_attention")
test_4d_scaled_dot_product_attention = judged_by("components.4d_scaled_dot_product_attention")
test_multihead_self_attention = judged_by("components.multihead_self_attention")
test_multihead_self_attention_with_rope = judged_by("components.multihead_self_attention_with_rope")
test_transformer_block = judged_by("components.transformer_block")

test_beyond_the_snapshots = judged_by_the_rest_of("components", globals())
