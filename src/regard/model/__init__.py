"""A fitted smoother as plain data (``smoother``), and everything that follows from one.

``effects`` are derivatives of answers. ``residuals`` are honest errors of the training rows, each answered by the
others (``left_out``), ``residual_scale`` their size from place to place, ``intervals`` what they say about new rows
(with ``ranks``, ``jackknife`` and ``confidence``), ``calibration`` the same for probabilities of classes.
``explanation`` names the rows behind an answer (with ``nearness`` and ``top``), ``diagnosis`` says whether attention is
too thin or too thick (with ``attention_summary``, ``optimum``, ``loss_path`` and ``baselines``), ``drift`` whether new
rows are still alike. ``mapped`` are training rows that stay in their file.
"""
