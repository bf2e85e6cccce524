"""Data that ship with carbontui; ATTRIBUTION.txt says where each file comes from."""
