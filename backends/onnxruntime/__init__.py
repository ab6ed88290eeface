"""The onnxruntime backend: torch.onnx's exporter and ONNX Runtime's sessions."""
