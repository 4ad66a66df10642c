"""The prefix of a built model: a leak is found where it is, in the tied model, in the untied one, or in both."""

import pytest
import torch
from torch import Tensor
from vectorised import Vectorised, result_of, subject_of

from cs336_harness.picture import charts

CHECK = "information_flow.changed_suffix_of_a_model"


class LeaksWhenBuilt(Vectorised):
    """Causal as MHA, and so through run_transformer_lm; a built GQA model sees the next token."""

    def mask(self, time: int) -> Tensor:
        leak = self.shape.num_kv_heads < self.shape.num_heads and self.leaks()
        return torch.ones(time, time, dtype=torch.bool).tril(int(leak))

    def leaks(self) -> bool:
        return True


class LeaksWhenTied(LeaksWhenBuilt):
    def leaks(self) -> bool:
        return self.shape.tie_embeddings


@pytest.mark.parametrize(
    ("oracle", "failing"), [(Vectorised, set()), (LeaksWhenBuilt, {"untied", "tied"}), (LeaksWhenTied, {"tied"})]
)
def test_a_leak_of_a_built_model_is_found_in_the_model_that_has_it(oracle: type[Vectorised], failing: set[str]) -> None:
    results = {case: result_of(f"{CHECK}[{case}]", subject_of(oracle)) for case in ("untied", "tied")}
    assert {case for case, result in results.items() if result.outcome == "failed"} == failing
    for case in failing:
        assert results[case].message.startswith(f"the {case} model's logits at row ")
        assert "no later token has a part in them" in results[case].message
        drawn = results[case].to_json()["figures"]["influence"]
        assert "leak" in {cell.look for cell in charts.influence(drawn).cells}
