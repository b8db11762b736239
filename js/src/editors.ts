/** The control of a knob, by its type. */

import { h, setText } from "./dom";
import { type Editor, enableInput, type Hands } from "./editor";
import { numberEditor } from "./number";
import { valueText } from "./numbers";
import type { Json, KnobView } from "./wire";

export function editorFor(view: KnobView, hands: Hands): Editor {
  switch (view.dtype) {
    case "bool":
      return boolEditor(view, hands);
    case "choice":
      return choiceEditor(view, hands);
    case "str":
      return textEditor(view, hands);
    case "float":
    case "int":
      return numberEditor(view, view.dtype, hands);
  }
}

function boolEditor(view: KnobView, hands: Hands): Editor {
  const box = h("input", { type: "checkbox", "aria-label": view.name });
  const word = h("span", { class: "it2-mono it2-dim", "aria-hidden": "true" });
  box.addEventListener("change", () => hands.commit(box.checked));
  const set = (value: Json) => {
    box.checked = value === true;
    setText(word, valueText(value));
  };
  return {
    kind: "bool",
    elements: [h("label", { class: "it2-check" }, box, word)],
    update: (now, ask) => set(ask === null ? now.value : ask.requested),
    revert: (now) => set(now.value),
    enable: (enabled, why) => enableInput(box, enabled, why),
  };
}

function choiceEditor(view: KnobView, hands: Hands): Editor {
  const select = h("select", { class: "it2-choice", "aria-label": view.name });
  let choices: Json[] = [];
  select.addEventListener("change", () => hands.commit(choices[select.selectedIndex] ?? null));
  const set = (now: KnobView, value: Json) => {
    const known = now.choices ?? [];
    if (JSON.stringify(known) !== JSON.stringify(choices) || select.options.length === 0) {
      choices = known;
      select.replaceChildren(
        ...choices.map((each) =>
          h("option", { text: typeof each === "string" ? each : valueText(each) }),
        ),
      );
    }
    select.selectedIndex = choices.indexOf(value);
  };
  return {
    kind: "choice",
    elements: [select],
    update: (now, ask) => set(now, ask === null ? now.value : ask.requested),
    revert: (now) => set(now, now.value),
    enable: (enabled, why) => enableInput(select, enabled, why),
  };
}

function textEditor(view: KnobView, hands: Hands): Editor {
  const field = h("input", { type: "text", class: "it2-text", "aria-label": view.name });
  let shown = "";
  let typing = false;
  const set = (value: Json) => {
    shown = typeof value === "string" ? value : valueText(value);
    field.value = shown;
  };
  const done = () => {
    typing = false;
    if (field.value !== shown) hands.commit(field.value);
  };
  field.addEventListener("input", () => {
    typing = true;
    hands.edited();
  });
  field.addEventListener("change", done);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    typing = false;
    field.value = shown;
    event.stopPropagation();
  });
  return {
    kind: "text",
    elements: [field],
    update(now, ask) {
      if (!typing) set(ask === null ? now.value : ask.requested);
    },
    revert(now) {
      typing = false;
      set(now.value);
    },
    enable: (enabled, why) => enableInput(field, enabled, why),
  };
}
