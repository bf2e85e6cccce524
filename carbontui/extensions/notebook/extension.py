"""`%load_ext carbontui` and `%%carbontui [options of run]` in IPython and Jupyter."""

from carbontui.hooks import Extension

EXTENSION = Extension("notebook", notebook="carbontui.extensions.notebook.magic:load")
