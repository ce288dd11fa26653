"""From symbols to ONNX: `model.py` walks the graph; the converters of operators are in the other files."""
