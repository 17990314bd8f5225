"""Complex tensors at the border of a compiled graph."""

from __future__ import annotations

import torch

from smelt.frontends.torch_compile import Listening, smelt_backend


def _compiled(function):
    return torch.compile(function, backend=smelt_backend, fullgraph=True, dynamic=False, options={"kernels": False})


def test_complex_results_and_arguments_pass_in_and_out():
    x = torch.randn(3, 8)
    spectrum = torch.fft.rfft(x)
    with Listening() as record:
        torch.testing.assert_close(_compiled(torch.fft.rfft)(x), spectrum)
        torch.testing.assert_close(_compiled(torch.fft.irfft)(spectrum), x)
    assert all(graph.whole for graph in record.graphs) and len(record.graphs) == 2


def test_a_pending_conjugation_is_carried_out():
    spectrum = torch.fft.fft(torch.randn(4)).conj()
    torch.testing.assert_close(_compiled(torch.fft.ifft)(spectrum), torch.fft.ifft(spectrum))


def test_strides_of_complex_results_are_torchs():
    x = torch.randn(4, 6)

    def function(x):
        return torch.fft.fft(x, dim=0)

    assert _compiled(function)(x).stride() == function(x).stride()
