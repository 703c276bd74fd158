"""Every operator test runs over every backend: without one named, operators take what the environment says."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True, params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    """Name of the backend of this run of the test."""
    if request.param == "cuda":
        from oocbe.kernels.cuda.device import why_unavailable

        if why_unavailable():
            pytest.skip(f"no GPU: {why_unavailable()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOCBE_BACKEND", request.param)
        yield request.param
