"""The machines of one job besides this one: their agent, its handle, and the wire between."""
