"""The tensorrt-rtx backend: engines of TensorRT for RTX, built also where no GPU is, run by ONNX Runtime's plugin."""
