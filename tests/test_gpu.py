"""On a real GPU: nothing stalls, faults are still named, and the numbers are the CPU's."""

from __future__ import annotations

import pytest
import torch

import ringfence as rf
from registry import METHODS
from stalls import no_stalls

pytestmark = pytest.mark.gpu


def made(name: str, **options: object) -> rf.Method:
    """The method, with its data points declared where it keeps a row for each: growing means asking the GPU."""
    entry = METHODS[name]
    return entry.make(**({"samples": 32} if entry.by_rows or name == "augmented, shared" else {}), **options)


def batch(device: str, seed: int = 0) -> tuple[torch.Tensor, dict[str, rf.Residual], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(8, 3, generator=generator).to(device).requires_grad_()
    low = torch.randn(8, 3, generator=generator).to(device) - 2
    mask = (torch.rand(8, 3, generator=generator) < 0.7).to(device)
    index = torch.randperm(32, generator=generator)[:8].to(device)
    named = {"size": rf.between(value, low, low + 3, mask=mask), "place": rf.at_most(value, 0.5, scale=2.0)}
    return value, named, index


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_training_call_never_stalls(name: str, reduction: str) -> None:
    fence, entry = made(name, reduction=reduction), METHODS[name]
    value, named, index = batch("cuda")
    fence(**named, index=entry.index(index)).backward()  # the first call makes the state
    data = [batch("cuda", seed) for seed in range(5)]
    with no_stalls():
        for value, named, index in data:
            again = {"size": rf.between(value, -1.0, torch.ones_like(value)), "place": named["place"]}
            fence(**again, index=entry.index(index)).backward()
    fence.step()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("declared", [True, False])
def test_same_numbers_as_on_the_cpu(name: str, declared: bool) -> None:
    results = []
    for device in ("cpu", "cuda"):
        fence, losses, gradients = made(name) if declared else METHODS[name].make(), [], []
        for seed in range(6):
            value, named, index = batch(device, seed)
            index = METHODS[name].index(index % 20)
            loss = fence(**named, index=index)
            losses.append(loss.item())
            gradients.append(torch.autograd.grad(loss, value)[0].cpu())
            if seed % 2:
                fence.step()
        duals = {key: dual.cpu() for key, dual in fence.duals(**named, index=index).items()}
        results.append((losses, gradients, duals, fence.certificate(0.0, **named, index=index).gap))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_faults_are_reported_at_the_step_with_constraint_and_rows() -> None:
    fence = rf.LogBarrier()
    value = torch.zeros(4, device="cuda", requires_grad=True)
    bad = torch.tensor([0.0, torch.nan, 0.0, torch.inf], device="cuda")
    fence(size=rf.between(value, -1.0, 1.0), place=value)
    fence(size=rf.between(value + bad, -1.0, 1.0), place=value)
    with pytest.raises(ValueError, match=r"constraint 'size' \(call 2 .*NaN or infinite in rows 1, 3\."):
        fence.step()
    fence(size=rf.between(value, torch.tensor([0.0, 2.0, 0.0, 0.0], device="cuda"), 1.0), place=value)
    with pytest.raises(ValueError, match=r"constraint 'size' .*low > high.* in row 1"):
        fence.step()


def test_validate_reports_at_once() -> None:
    fence = rf.LogBarrier(validate=True)
    with pytest.raises(ValueError, match="constraint 'size': residual is NaN"):
        fence(size=torch.full((2,), torch.nan, device="cuda"))


def test_a_wild_index_is_reported_not_a_crash() -> None:
    fence = rf.Lagrangian(1.0, samples=4)
    fence(size=torch.ones(2, device="cuda", requires_grad=True), index=torch.tensor([1, 99], device="cuda"))
    with pytest.raises(ValueError, match=r"sample out of range in row 1\."):
        fence.step()


def test_the_barrier_is_exact_there_too() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        info = torch.finfo(dtype)
        points = [0.0, -0.0, info.tiny, -info.tiny, -1.0, -0.04, 1.0, -info.max, 100.0]
        z = torch.tensor(points, dtype=dtype, device="cuda").requires_grad_()
        for t in (1e-3, 5.0, 1e8):
            value, dual = rf.log_barrier(z, t), rf.log_barrier_dual(z, t)
            assert torch.isfinite(value).all()
            torch.testing.assert_close(value.cpu(), rf.log_barrier(z.cpu(), t), rtol=1e-5, atol=1e-6 / t)
            torch.testing.assert_close(dual.cpu(), rf.log_barrier_dual(z.cpu(), t), rtol=1e-6, atol=0.0)


def test_state_follows_the_module_and_survives_a_move() -> None:
    fence = rf.Lagrangian(1.0, samples=4)
    fence(size=torch.ones(2, requires_grad=True), index=torch.tensor([0, 1]))
    fence.step()
    fence.cuda()
    assert fence.multipliers["size"].is_cuda
    loaded = rf.Lagrangian(1.0, samples=4)
    loaded.load_state_dict({key: value.cpu() for key, value in fence.state_dict().items()})
    loss = loaded(size=torch.ones(2, device="cuda", requires_grad=True), index=torch.tensor([0, 1]))
    assert loss.item() == 2.0


def test_autocast_and_grad_scaler() -> None:
    model = torch.nn.Linear(8, 1).cuda()
    optimiser, scaler, fence = (
        torch.optim.SGD(model.parameters(), lr=1e-3),
        torch.amp.GradScaler("cuda"),
        rf.LogBarrier(),
    )
    for _ in range(3):
        optimiser.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            output = model(torch.randn(16, 8, device="cuda"))
            loss = fence(size=rf.between(output, -0.5, 0.5))
        assert loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        fence.step()


def test_an_overflow_of_float16_leaves_multipliers_alone() -> None:
    fence = rf.Lagrangian(1.0, samples=4, initial=0.5)
    index = torch.arange(4, device="cuda")
    good = torch.ones(4, dtype=torch.float16, device="cuda", requires_grad=True)
    fence(a=good * 2, index=index)
    fence.step()
    assert fence.multipliers["a"].tolist() == [2.5] * 4
    scale = torch.tensor([4.0, 60000.0, 4.0, 4.0], device="cuda").half()
    with no_stalls():
        fence(a=good * scale * 4, index=index)
    fence.step()
    assert fence.multipliers["a"].tolist() == [2.5] * 4


def test_an_index_on_the_cpu_serves_shared_multipliers_on_the_gpu() -> None:
    results = []
    for device in ("cpu", "cuda"):
        fence = rf.AugmentedLagrangian(0.5, shared=True)
        for step in range(4):
            x = torch.full((2,), 1.0 + step, device=device, requires_grad=True)
            loss = fence(a=rf.between(x, -1.0, 1.0), index=torch.tensor([step, step + 1]))
            fence.step()
        results.append((loss.item(), fence.multipliers["a"].tolist()))
    (loss, multipliers), (other_loss, others) = results
    assert other_loss == pytest.approx(loss)
    assert others == pytest.approx(multipliers)


def test_crossed_bounds_of_half_precision_are_still_a_fault() -> None:
    fence = rf.LogBarrier()
    value = torch.zeros(2, device="cuda", dtype=torch.float16, requires_grad=True)
    fence(size=rf.between(value, torch.tensor([0.0, 3.0], device="cuda"), torch.ones(2, device="cuda")))
    with pytest.raises(ValueError, match=r"constraint 'size' .*low > high.* in row 1"):
        fence.step()


@pytest.mark.parametrize("name", [name for name, entry in METHODS.items() if entry.dual])
def test_a_state_loaded_on_the_cpu_follows_the_residuals(name: str) -> None:
    entry = METHODS[name]
    index = entry.index(torch.arange(3, device="cuda"))
    mask = torch.tensor([True, True, False], device="cuda")

    def call(fence: rf.Method) -> None:
        x = torch.ones(3, device="cuda", requires_grad=True)
        fence(a=rf.at_most(x, 0.5, mask=mask), index=index)

    fence, loaded = entry.make(), entry.make()
    for _ in range(3):
        call(fence)
        fence.step()
    call(fence)
    loaded.load_state_dict({key: value.cpu() for key, value in fence.state_dict().items()})
    for one in (fence, loaded):
        call(one)
        one.step()
        call(one)
        one.step()
    torch.testing.assert_close(dict(loaded.multipliers), dict(fence.multipliers))


def test_a_step_in_place_does_not_disturb_a_graph_in_flight() -> None:
    fence = rf.Lagrangian(1.0, initial=1.0, same_rows=True)
    f = torch.tensor([2.0], device="cuda", requires_grad=True)
    loss = fence(a=f)
    fence.step()
    loss.backward()
    assert f.grad.tolist() == [1.0]
    assert fence.multipliers["a"].tolist() == [3.0]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch, of itself
def test_inductor_compiles_the_loss() -> None:
    fence = rf.LogBarrier(t=3.0)
    value = torch.randn(64, 4, device="cuda")

    def loss(value: torch.Tensor) -> torch.Tensor:
        return fence(size=rf.between(value, -1.0, torch.ones_like(value)))

    expected = loss(value)
    torch.testing.assert_close(torch.compile(loss, fullgraph=True)(value), expected, rtol=1e-5, atol=1e-5)


def test_region_measures_boxes_without_a_stall_and_like_the_cpu() -> None:
    logits = torch.randn(2, 3, 24, 32, 40)
    boxes = torch.tensor([[[[2, 20], [0, 32], [5, 17]], [[3, 3], [0, 0], [0, 0]]]] * 2)
    on_cpu = rf.segmentation.Region(logits)
    expected = (on_cpu.size, on_cpu.centroid, on_cpu.outside(boxes), *on_cpu.strips(boxes))
    there, boxes_there = logits.cuda(), boxes.cuda()
    with no_stalls():
        rf.segmentation.Region(there, classes=[2, 0]).size.add(1)
        region = rf.segmentation.Region(there)
        found = (region.size, region.centroid, region.outside(boxes_there), *region.strips(boxes_there))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-3)
