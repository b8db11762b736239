"""Make the policy that the Countdown workflow begins with, by its supervised steps.

python -m scripts.countdown_policy      # writes it2nb/assets/countdown.safetensors: minutes
"""

from __future__ import annotations

from safetensors.torch import save_file

from it2nb.workflows.warmup import FILE, warm_up


def main() -> None:
    """Warm up, and keep the weights in half precision."""
    weights = {k: v.half().contiguous() for k, v in warm_up("laptop").state_dict().items()}
    save_file(weights, FILE)
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
