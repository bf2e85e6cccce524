"""`explain --llm`: a language model's wording beside our own."""

from carbontui.hooks import Extension

HERE = "carbontui.extensions.llm.llm"
EXTENSION = Extension("llm", explain=f"{HERE}:say", explain_options=f"{HERE}:options")
