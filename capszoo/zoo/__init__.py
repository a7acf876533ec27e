"""Presets: recipes, cards, weight files and where they are found, publishing."""
