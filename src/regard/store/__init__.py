"""Fitted models as files: regard's own format (``models``), and ONNX."""

from regard.store.models import StoreError, load, load_with_metadata, save

__all__ = ["StoreError", "load", "load_with_metadata", "save"]
