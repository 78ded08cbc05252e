"""A fitted smoother as plain data (``smoother``), and functions of it.

- ``effects``: derivatives of predictions.
- ``residuals``: leave-one-out errors of the training rows (``leave_one_out``); ``residual_scale``: their size as a
  function of x; ``intervals``: prediction and confidence intervals from them (``quantiles``, ``jackknife``).
- ``calibration``: class probabilities and conformal sets.
- ``explanation``: the training rows behind a prediction (``attended_rows``).
- ``diagnosis``: whether attention is too thin or too thick (``attention_summary``, ``loss_path``); ``drift``: whether
  new rows follow the training rows; ``naive_answers``: predictions to beat.
- ``mapped``: training rows in a memory-mapped file. ``formatting``: numbers and tables as text.
"""
