"""The onnxruntime backend: exports with torch.onnx and runs ONNX Runtime sessions."""
