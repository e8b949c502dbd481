"""The simulations behind the benchmarks of splitters, on shorter streams."""

import numpy as np
import pytest

from equipoise_lab.bench import dkg_sim
from equipoise_lab.bench.harness import Context
from equipoise_lab.simulate import streams


@pytest.fixture
def shorter(monkeypatch):
    def shorten(module):
        monkeypatch.setattr(
            module, "stream", lambda shares, messages, seed: streams.stream(shares, messages // 3, seed=seed)
        )

    return shorten


def test_dkg_beats_pkg_the_more_the_hotter_the_key(shorter):
    shorter(dkg_sim)
    metrics = dkg_sim.run(Context(quick=True)).metrics
    assert {"dkg_over_pkg_r30", "dkg_over_pkg_r80", "distcost_over_shuffle"} <= set(metrics)
    assert metrics["dkg_over_pkg_r80"] > metrics["dkg_over_pkg_r30"] > 1
    assert np.isfinite(list(metrics.values())).all()
    assert metrics["distcost_over_shuffle"] < 0.5
