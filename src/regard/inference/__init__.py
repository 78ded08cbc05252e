"""What attention says about itself: the diagnosis of a fitted width, from attention moments and left-out rows.

``looks`` measures how attention looks at the training rows, ``optimum`` finds the sharpness that left-out rows like
best, and ``diagnosis`` puts both into words.
"""

from regard.inference.diagnosis import Diagnosis, diagnose
from regard.inference.looks import Look

__all__ = ["Diagnosis", "Look", "diagnose"]
