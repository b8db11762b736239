from __future__ import annotations

from typing import Any

from it2nb.notebook.names import local_names, names_of, reach


def code(source: str) -> Any:
    return compile(source, "<cell>", "exec")


def test_reads_and_binds_of_a_cell() -> None:
    names = names_of(code("for i in range(n):\n    total = total + i\nimport os\ndel old"))
    assert names.binds == {"i", "total", "os", "old"}
    assert {"n", "total", "range"} <= names.reads


def test_functions_inside_count_with_their_globals_only() -> None:
    names = names_of(code("def f(a):\n    global g\n    b = a + c\n    g = b\n"))
    assert names.binds == {"f", "g"}
    assert "c" in names.reads
    assert not {"a", "b"} & names.all


def test_names_in_a_class_body_are_its_own() -> None:
    names = names_of(code("class C:\n    x = y\n    def m(self): return z"))
    assert names.binds == {"C"}
    assert {"y", "z"} <= names.reads


def test_attributes_are_no_names() -> None:
    assert "model" not in names_of(code("trainer.model.train()")).all


def test_functions_and_classes_of_the_namespace_are_followed() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "def inner(): return model\n"
        "def outer():\n    global best\n    best = inner()\n"
        "class Trainer:\n    def fit(self): return loader\n"
        "trainer = Trainer()\n",
        space,
    )
    names = reach(names_of(code("outer(); trainer.fit()")), space)
    assert {"outer", "inner", "model", "trainer", "loader"} <= names.reads
    assert "best" in names.binds


def test_functions_of_other_modules_are_not_followed() -> None:
    import json

    space: dict[str, Any] = {"__name__": "__main__", "json": json, "dumps": json.dumps}
    assert reach(names_of(code("dumps(1)")), space).reads == {"dumps"}


def test_recursion_ends() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): return g()\ndef g(): return f()", space)
    assert {"f", "g"} <= reach(names_of(code("f()")), space).reads


def test_local_names_are_those_of_every_function() -> None:
    found = local_names(code("def f(a):\n    b = 1\n    return lambda c: b + c"))
    assert {"f", "a", "b", "c"} <= found
