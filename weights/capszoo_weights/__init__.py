"""One folder per preset with its `weights.safetensors`; the cards are those of `capszoo`."""
