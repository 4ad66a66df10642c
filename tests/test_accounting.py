"""Parameters and FLOPs of the subject against an independent count, and the laws that hold between them."""

from cs336_harness.pytest_plugin import judged_by, judged_by_each

test_parameter_count = judged_by_each("accounting.parameter_count")
test_tying = judged_by("accounting.tying")
test_flop_terms = judged_by("accounting.flop_terms")
test_forward_flops = judged_by_each("accounting.forward_flops")
test_batch_law = judged_by("accounting.batch_law")
test_length_law = judged_by("accounting.length_law")
test_unique_parameters = judged_by_each("accounting.unique_parameters")
test_counted_flops = judged_by_each("accounting.counted_flops")
