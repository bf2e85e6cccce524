"""Words: every sentence users read, and the form of every number in it, for all outputs; one place per statement.

Rooms below carry codes and figures (`protocol.Statement`); they become words here at the last moment. Nothing reads
a sentence back: what a decision or a layout depends on is a code or a figure.
"""
