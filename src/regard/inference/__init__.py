"""What attention says about itself: the diagnosis of a fitted width, from attention moments and left-out rows.

``looks`` measures how attention looks at the training rows, ``optimum`` finds the sharpness that left-out rows like
best, ``path`` the losses on the way there, and ``diagnosis`` puts it into words.
"""

from regard.inference.diagnosis import Diagnosis, diagnose
from regard.inference.looks import Look
from regard.inference.path import LossPath, loss_path

__all__ = ["Diagnosis", "Look", "LossPath", "diagnose", "loss_path"]
