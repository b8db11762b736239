"""Adapters that know PyTorch: knobs of optimizers and schedulers, step hooks, checkpoints."""
