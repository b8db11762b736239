"""Every error that it2nb raises, in one tree.

::

    It2nbError
    ├── KnobError               a knob was declared or used wrongly
    │   ├── KnobRangeError      bounds that contradict each other, or a value outside of them
    │   └── UnknownKnob
    ├── ActionError             an action was declared or used wrongly
    │   └── UnknownAction
    ├── Rejected                raised by a setter or handler: nothing was touched, and why
    ├── QueueFull
    ├── SessionEnded
    ├── WrongThread
    ├── JournalError
    │   └── JournalDamaged
    ├── ServerError             a server or client was used wrongly
    │   ├── PortTaken           another program listens there; the message offers a free port
    │   ├── Unreachable         no answer from the server
    │   └── Refused             the server answered with an error; holds its status and reason
    ├── WorkflowUnavailable     a workflow needs more than there is: GPU memory, the hub
    ├── AgentError              a language model can't be asked, or did not answer
    └── MissingDependency       an optional package is not installed (also an ImportError)

`It2nbWarning` is a warning. `StopTraining` is not here: it is a BaseException that ends a loop,
not an error (core/control.py).
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class It2nbError(Exception):
    """Root of all errors of this package."""


class It2nbWarning(UserWarning):
    """Something came to nothing, and nobody was told of it in any other way."""


class KnobError(It2nbError):
    """A knob was declared or used wrongly."""


class KnobRangeError(KnobError):
    """Bounds that contradict each other, or a value outside of them."""


class UnknownKnob(KnobError, KeyError):
    """No knob has this name."""

    def __str__(self) -> str:
        # KeyError quotes its argument; the message is meant to be read.
        return str(self.args[0]) if self.args else ""


class ActionError(It2nbError):
    """An action was declared or used wrongly."""


class UnknownAction(ActionError, KeyError):
    """No action has this name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class Rejected(It2nbError):
    """Raise it in a setter or a handler: the request is `rejected` and nothing was touched.

    Parameters
    ----------
    reason : str
        What was wrong, in words for the person who asked.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class QueueFull(It2nbError):
    """More requests wait than the session's queue holds."""


class SessionEnded(It2nbError):
    """The session has ended; it takes no further requests."""


class WrongThread(It2nbError):
    """A method that only the training thread may call was called by another one."""


class JournalError(It2nbError):
    """The journal was used wrongly or can't be written."""


class JournalDamaged(JournalError):
    """A journal file is not what its writer wrote; the message names the seq."""

    def __init__(self, message: str, *, seq: int | None = None) -> None:
        super().__init__(message)
        self.seq = seq


class ServerError(It2nbError):
    """A server or a client was used wrongly, or failed."""


class PortTaken(ServerError):
    """Another program listens on this port.

    Attributes
    ----------
    port : int
        The port that was asked for.
    free : int or None
        One that was free a moment ago.
    """

    def __init__(self, message: str, *, port: int, free: int | None = None) -> None:
        super().__init__(message)
        self.port = port
        self.free = free


class Unreachable(ServerError):
    """The server did not answer."""


class Refused(ServerError):
    """The server answered with an error.

    Attributes
    ----------
    status : int
        Of HTTP: 401 for a wrong token, 422 for a request that makes no sense...
    reason : str
        In the server's words.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the server refused ({status}): {reason}")
        self.status = status
        self.reason = reason


class WorkflowUnavailable(It2nbError):
    """A workflow needs what this machine has not; the message says what, and what to do."""


class AgentError(It2nbError):
    """A language model can't be asked, or did not answer.

    Attributes
    ----------
    passing : bool
        Whether another try may work.
    hopeless : bool
        Whether no later call will work either: a wrong key, no such model.
    wait_s : float
        Seconds that the endpoint asks to wait.
    maybe_billed : bool
        Whether the endpoint may have made an answer that did not arrive.
    lost_tries : int
        How many times it may have.
    """

    def __init__(
        self,
        message: str,
        *,
        passing: bool = False,
        hopeless: bool = False,
        wait_s: float = 0.0,
        maybe_billed: bool = False,
        lost_tries: int | None = None,
    ) -> None:
        super().__init__(message)
        self.passing = passing
        self.hopeless = hopeless
        self.wait_s = wait_s
        self.maybe_billed = maybe_billed
        self.lost_tries = int(maybe_billed) if lost_tries is None else lost_tries


class MissingDependency(It2nbError, ImportError):
    """An optional package is not installed; the message says how to install it."""


def near(name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """Say which known names a wrong one may have meant.

    Parameters
    ----------
    name : str
    known : iterable of str
    also : iterable of str
        Aliases: they may be meant, and are not listed.

    Returns
    -------
    str
        ``"; did you mean 'lr'?"``, else the list of known names, else ``"; there are none"``.
    """
    names = list(known)
    meant = [*names, *(each for each in also if each not in names)]
    by_letters = {each.casefold(): each for each in reversed(meant)}  # LR may well mean lr
    found = difflib.get_close_matches(name.casefold(), by_letters, n=3, cutoff=0.5)
    # lr where there are opt_g.lr and opt_d.lr: far from both in letters.
    owned = [each for each in names if each.casefold().rpartition(".")[2] == name.casefold()]
    close = [*owned, *(by_letters[each] for each in found if by_letters[each] not in owned)][:3]
    if close:
        return "; did you mean " + " or ".join(repr(each) for each in close) + "?"
    if not names:
        return "; there are none"
    listed = ", ".join(sorted(names)[:12])
    return f"; known: {listed}" + (", ..." if len(names) > 12 else "")


def require(module: str, *, extra: str, feature: str) -> ModuleType:
    """Import an optional dependency, or say how to install it.

    Raises
    ------
    MissingDependency
        If the package is not installed. A package that is installed but broken inside
        shows its own error.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name != module.partition(".")[0]:
            raise
        raise MissingDependency(
            f"{feature} needs {module!r}: pip install 'it2nb[{extra}]'"
        ) from err
