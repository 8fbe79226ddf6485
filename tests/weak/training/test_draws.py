"""Random numbers by seed, epoch and sample: SplitMix64's own, even, independent, and the same for everybody."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.training.draws import FIELD, NOISE, bell, keys, mixed, uniform

WHOLE = 2**64


def reference(number: int) -> int:
    """SplitMix64's output function in Python's own integers."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) % WHOLE
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % WHOLE
    return number ^ (number >> 31)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_numbers_are_mixed_as_splitmix64_does(numbers: list[int]) -> None:
    found = mixed(torch.tensor(numbers)).tolist()
    assert [one % WHOLE for one in found] == [reference(one % WHOLE) for one in numbers]


@given(st.integers(0, 2**31 - 1), st.integers(0, 10_000), st.lists(st.integers(0, 10**9), min_size=1, max_size=9))
def test_a_sample_has_its_numbers_whoever_is_beside_it(seed: int, epoch: int, samples: list[int]) -> None:
    index = torch.tensor(samples)
    together = uniform(keys(seed, epoch, index), 5)
    for row, one in zip(together, index.split(1), strict=True):
        assert torch.equal(row[None], uniform(keys(seed, epoch, one), 5))
    assert torch.equal(keys(seed, epoch, index), keys(seed, torch.tensor(epoch), index))


def test_they_are_even_and_do_not_go_together() -> None:
    some = uniform(keys(3, 7, torch.arange(4000)), 25)
    assert 0.0 <= float(some.min()) < 1e-3
    assert 1.0 - 1e-3 < float(some.max()) < 1.0
    torch.testing.assert_close(some.mean(dim=0), torch.full((25,), 0.5), atol=0.02, rtol=0)
    torch.testing.assert_close(some.var(dim=0), torch.full((25,), 1 / 12), atol=0.005, rtol=0)
    apart = torch.corrcoef(some.T) - torch.eye(25)
    assert float(apart.abs().max()) < 0.08  # five standard deviations of 4000 pairs
    other = uniform(keys(3, 8, torch.arange(4000)), 25)
    assert abs(float(torch.corrcoef(torch.stack([some[:, 0], other[:, 0]]))[0, 1])) < 0.08


def test_almost_normal_numbers_have_mean_0_and_variance_1() -> None:
    some = bell(keys(0, 0, torch.arange(300)), 1000)
    assert abs(float(some.mean())) < 0.01
    assert abs(float(some.var()) - 1.0) < 0.01
    assert float(some.abs().max()) <= 2 * 3**0.5
    assert not torch.equal(some, bell(keys(0, 0, torch.arange(300)), 1000, FIELD))
    assert NOISE > FIELD + 1000
