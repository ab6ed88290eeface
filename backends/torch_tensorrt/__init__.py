"""The tensorrt and tensorrt-aot backends, which both use torch_tensorrt."""
