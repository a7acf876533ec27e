"""The papers' tables: what their cells are, which numbers there are, and how the missing ones are made.

It stands right of protocols and of the zoo, since a cell's number may be that of a published card.
"""
