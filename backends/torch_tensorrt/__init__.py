"""The tensorrt and tensorrt-aot backends, both made with torch_tensorrt."""
