"""The two comms of a panel: a stream to the browser, a control from it.

They are two because ipykernel 7.4 routes a comm's incoming messages to the shell that last
published on it: on a comm that the kernel streams on, a click would wait for the running cell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import anywidget
import ipywidgets
import traitlets

from it2nb.core.faults import Fault, guard

Receiver = Callable[[Any, list[bytes]], None]


@cache
def script(name: str) -> str:
    """Return a script that was built from js/; FileNotFoundError when it was not built."""
    return files("it2nb.notebook").joinpath("static", name).read_text(encoding="utf-8")


class StreamWidget(anywidget.AnyWidget):
    """The widget whose views are the panel. It syncs nothing while a run lives."""

    panel_id = traitlets.Unicode().tag(sync=True)
    control = traitlets.Unicode().tag(sync=True)
    python = traitlets.Unicode().tag(sync=True)


class ControlWidget(ipywidgets.Widget):  # type: ignore[misc]
    """A model without a view, whose custom messages are the requests."""

    _model_module = traitlets.Unicode("@jupyter-widgets/base").tag(sync=True)
    _model_name = traitlets.Unicode("WidgetModel").tag(sync=True)
    _model_module_version = traitlets.Unicode("2.0.0").tag(sync=True)


class Comms:
    """Both ends in the kernel.

    Parameters
    ----------
    panel_id : str
    python : str
        Shown by the widget when it can't reach the kernel.
    receive : callable
        Called with the content and the buffers of each message, on whatever thread it came.
    report : callable
        Called with a Fault when a send or `receive` failed.
    """

    def __init__(
        self,
        panel_id: str,
        python: str,
        receive: Receiver,
        report: Callable[[Fault], object],
    ) -> None:
        self._receive = receive
        self._report = report
        self.control = ControlWidget()
        self.stream = StreamWidget(
            _esm=script("loader.js"),
            panel_id=panel_id,
            control=self.control.model_id,
            python=python,
        )
        for widget in (self.control, self.stream):
            stay_in_subshell(widget.comm)
            widget.on_msg(self._heard)

    def _heard(self, _: object, content: Any, buffers: list[bytes]) -> None:
        # Exceptions in a comm's handler are seen in no cell: they go into the panel.
        with guard("panel message", self._report):
            self._receive(content, buffers)

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> bool:
        """Send to all pages; False when there is no comm or it failed. Sender thread only."""
        if self.stream.comm is None:
            return False
        with guard("panel stream", self._report) as fault:
            self.stream.send(content, buffers=buffers)
        return not fault

    @property
    def is_open(self) -> bool:
        """Whether there is a comm to send on."""
        return self.stream.comm is not None

    def close(self) -> None:
        """Close the comms, the layout's too; front ends drop their models."""
        layout = self.stream.layout
        for widget in (self.stream, self.control, layout):
            with guard("closing a comm"):
                widget.on_msg(self._heard, remove=True)
                widget.close()


def stay_in_subshell(comm: Any) -> None:
    """Let messages be handled where the front end addressed them.

    ipykernel 7.4 answers on the shell that last published on the comm instead (JUPYTER.md,
    section 1). The method is private: where it is missing there is nothing to undo.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
