"""Damaged copies of files, the same from the same seed."""


def damaged(contents: bytes, rng, count):
    """`count` pairs of words and damaged copies: truncated, with flipped bits, with zeros, with foreign bytes."""
    for number in range(count):
        kind, copy = ("cut", "flipped", "zeroed", "foreign")[number % 4], bytearray(contents)
        place = int(rng.integers(len(copy)))
        if kind == "cut":
            copy = copy[:place]
        elif kind == "flipped":
            copy[place] ^= 1 << int(rng.integers(8))
        else:
            length = min(int(rng.integers(1, 200)), len(copy) - place)
            copy[place : place + length] = bytes(length) if kind == "zeroed" else rng.bytes(length)
        yield f"{kind} at {place}", bytes(copy)
