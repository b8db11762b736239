"""The control plane: knobs, actions, requests, policy, journal and the session that joins them.

Standard library, pydantic, orjson and numpy only; neither torch nor IPython is imported here.
"""
