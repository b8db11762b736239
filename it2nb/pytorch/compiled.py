"""Steps inside ``torch.compile``."""

from __future__ import annotations

from threading import get_ident

import torch

#: Told in the panel when a step can't be seen.
NOT_SEEN = (
    "optimizer.step() runs inside torch.compile(fullgraph=True): it has no control points and "
    "edits don't reach it. Compile without fullgraph, or leave the step out of the compiled "
    "function"
)


def must_not_break() -> bool:
    """Whether the function that is traced now has to stay one graph.

    Called while tracing (its result is a constant of the graph), and never at run time: a hook
    that breaks a ``fullgraph=True`` function would raise in the user's own step.
    """
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        tracing = InstructionTranslator.current_tx()
        strict = bool(tracing.one_graph or tracing.error_on_graph_break)
    except (ImportError, AttributeError):
        # Private, and not in every version: then our hooks break the graph, as they do anyway.
        return False
    if strict:
        _tell()
    return strict


def prepare() -> None:
    """Let the compiler call `must_not_break` itself instead of tracing it."""
    torch.compiler.assume_constant_result(must_not_break)


def _tell() -> None:
    from it2nb.pytorch.switchboard import switchboard

    attachment = switchboard().attachments.get(get_ident())
    if attachment is not None:
        attachment.session.warn(NOT_SEEN)
