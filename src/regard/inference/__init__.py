"""What attention says about itself, from attention moments and left-out rows: is it too thin, and how sure is it?

``looks`` measures how attention looks at the training rows, ``optimum`` finds the sharpness that left-out rows like
best, ``path`` the losses on the way there, ``simple`` has the answers to beat, and ``diagnosis`` puts it into words.

``residuals`` are honest errors of the training rows, ``spread`` is their size from place to place, ``ranks`` makes
intervals and quantiles of them, ``jackknife`` takes rows out one by one, ``confidence`` is about the mean itself, and
``calibration`` about probabilities of classes.

``nearness`` measures what made rows near, ``explanation`` tells it, ``effects`` says how sure marginal effects are, and
``drift`` whether new rows are still alike.
"""

from regard.inference.diagnosis import Diagnosis, diagnose
from regard.inference.looks import Look
from regard.inference.path import LossPath, loss_path
from regard.inference.simple import Simple, root_mean_square, simple_answers

__all__ = ["Diagnosis", "Look", "LossPath", "Simple", "diagnose", "loss_path", "root_mean_square", "simple_answers"]
