"""Small kernels for a GPU: what a few hundred residuals take is launches, and these make one of dozens.

Where they cannot be used (no GPU, no Triton, other dtypes, a compiler or torch.func at work), the plain operations
they stand for are.
"""
