"""What attention says about itself: the diagnosis of a fitted width, from attention moments and left-out rows.

``looks`` measures how attention looks at the training rows, ``optimum`` finds the sharpness that left-out rows like
best, ``path`` the losses on the way there, ``simple`` has the answers to beat, and ``diagnosis`` puts it into words.
"""

from regard.inference.diagnosis import Diagnosis, diagnose
from regard.inference.looks import Look
from regard.inference.path import LossPath, loss_path
from regard.inference.simple import Simple, simple_answers

__all__ = ["Diagnosis", "Look", "LossPath", "Simple", "diagnose", "loss_path", "simple_answers"]
