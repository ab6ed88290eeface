"""Models that users bring: a factory in a Python file, a torch.export archive, or a live module."""
