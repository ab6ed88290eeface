"""The onnxruntime backend: exports modules with torch.onnx and runs them in ONNX Runtime sessions."""
