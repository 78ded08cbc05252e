"""The scores by their public path; they are defined in ``regard.core.scores``.

>>> KERNELS["gaussian"].compact
False
>>> RADIAL["gaussian"] is Gaussian
True
"""

from regard.core.scores import *  # noqa: F403
from regard.core.scores import __all__ as __all__
