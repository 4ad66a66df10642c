"""The whole decoder against the public snapshots, under CS336's names where it has one."""

from cs336_harness.pytest_plugin import judged_by

test_transformer_lm = judged_by("assembly.transformer_lm")
test_transformer_lm_truncated_input = judged_by("assembly.transformer_lm_truncated_input")
test_transformer_lm_full_context = judged_by("assembly.transformer_lm_full_context")
test_transformer_lm_one_token = judged_by("assembly.transformer_lm_one_token")
