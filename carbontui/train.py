"""carbontui.train: the toolkit for plain PyTorch loops, under the name that scripts import (carbontui/client/train)."""

from carbontui.client.train import *  # noqa: F403
from carbontui.client.train import __all__, __doc__  # noqa: F401
