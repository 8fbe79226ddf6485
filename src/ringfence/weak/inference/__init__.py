"""Trained models at work: model_file (what is stored), predictor, model (arrays), export and overlays (files)."""
