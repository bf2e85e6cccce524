"""Joules and grid to grams and money: pure functions on journal rows."""
