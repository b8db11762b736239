/** The knobs: found by search, grouped, each saying what became of the last request for it. */

import { h, setAttribute, setText, show } from "./dom";
import { brief, exact, parseNumber, valueText } from "./numbers";
import { type Ask, askFor, isOver, type Store } from "./store";
import { type Track, trackOf } from "./track";
import type { Json, KnobView } from "./wire";
import { knobSaid, knobTitle, type Said } from "./words";

/** Key presses on a slider are one gesture until they rest for this long. */
const KEY_REST_MS = 350;
/** Characters that the number field has room for. */
const FITS = 10;

export type SetKnob = (name: string, value: Json, mode?: string) => void;

export class Knobs {
  readonly element = h("section", { class: "it2-knobs", "aria-label": "Knobs" });
  readonly search = h("input", {
    class: "it2-search",
    type: "search",
    placeholder: "Find a knob",
    "aria-label": "Find a knob",
    spellcheck: "false",
  });
  #list = h("div", { class: "it2-knob-list" });
  #none = h("p", { class: "it2-none" });
  #rows = new Map<string, KnobRow>();
  #order = "";

  constructor(
    private readonly set: SetKnob,
    private readonly setMode: (name: string, mode: string) => void,
    signal: AbortSignal,
  ) {
    this.element.append(h("div", { class: "it2-bar" }, this.search), this.#list, this.#none);
    this.search.addEventListener("input", () => this.#filter(), { signal });
  }

  update(store: Store, now: number): void {
    const names = store.knobNames.filter((name) => store.knobs[name]?.hidden === false);
    const order = names.map((name) => `${store.knobs[name]?.group}\n${name}`).join("\n\n");
    if (order !== this.#order) {
      this.#order = order;
      this.#arrange(names, store);
    }
    const over = isOver(store) || !store.connected;
    for (const [name, row] of this.#rows) {
      const view = store.knobs[name];
      if (view !== undefined) row.update(view, askFor(store, name), { store, now, over });
    }
  }

  /** Rows in groups; a row that stays is kept, and with it focus and half-typed text. */
  #arrange(names: string[], store: Store): void {
    const groups = new Map<string, KnobRow[]>();
    for (const name of names) {
      const view = store.knobs[name] as KnobView;
      let row = this.#rows.get(name);
      if (row === undefined || row.dtype !== view.dtype) {
        row = new KnobRow(view, this.set, this.setMode);
        this.#rows.set(name, row);
      }
      groups.set(view.group, [...(groups.get(view.group) ?? []), row]);
    }
    for (const name of [...this.#rows.keys()]) if (!names.includes(name)) this.#rows.delete(name);
    this.#list.replaceChildren(
      ...[...groups].map(([group, rows]) => {
        const part = h("div", { class: "it2-group", role: "group" });
        if (group) {
          part.setAttribute("aria-label", group);
          part.append(h("h4", { text: group }));
        }
        part.append(...rows.map((row) => row.element));
        return part;
      }),
    );
    this.#filter();
  }

  #filter(): void {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of this.#rows.values()) {
      const matches = words.every((word) => row.haystack.includes(word));
      show(row.element, matches);
      if (matches) found += 1;
    }
    for (const group of this.#list.children) {
      show(
        group as HTMLElement,
        [...group.querySelectorAll<HTMLElement>(".it2-knob")].some((row) => !row.hidden),
      );
    }
    const empty =
      this.#rows.size === 0
        ? "No knobs yet: they appear with the first optimizer step, or with --knob and register_knob."
        : `No knob matches “${this.search.value}”.`;
    setText(this.#none, found === 0 ? empty : "");
    show(this.#none, found === 0);
    show(this.search, this.#rows.size > 4 || this.search.value !== "");
  }
}

interface Context {
  store: Store;
  now: number;
  over: boolean;
}

class KnobRow {
  readonly element: HTMLElement;
  readonly dtype: KnobView["dtype"];
  haystack: string;

  #view: KnobView;
  #ask: Ask | null = null;
  #label: HTMLElement;
  #mode: HTMLSelectElement | null = null;
  #members = h("div", { class: "it2-members" });
  #said = h("div", { class: "it2-said" });
  #editor: Editor;
  #localSaid: Said | null = null;
  #confirm = h("div", { class: "it2-confirm", role: "alertdialog" });
  #context: Context | null = null;

  constructor(
    view: KnobView,
    private readonly set: SetKnob,
    private readonly setMode: (name: string, mode: string) => void,
  ) {
    this.#view = view;
    this.dtype = view.dtype;
    this.haystack = "";
    this.#label = h("span", { class: "it2-label" });
    const name = h("div", { class: "it2-knob-name" }, this.#label);
    if (view.modes.length > 0) {
      this.#mode = h("select", {
        class: "it2-mode",
        "aria-label": `${view.name}: mode`,
        on: { change: () => this.#pickMode() },
      });
    }
    this.#editor = editorFor(view, {
      commit: (value) => this.#commit(value),
      refuse: (asked, why) => this.#refuse(asked, why),
      edited: () => this.#edited(),
    });
    const row = h("div", { class: "it2-row", "data-kind": this.#editor.kind }, name);
    row.append(...this.#editor.elements);
    show(this.#confirm, false);
    this.element = h("div", { class: "it2-knob", "data-knob": view.name }, row);
    const texts = h("div", { class: "it2-texts" }, this.#members, this.#confirm, this.#said);
    this.element.append(h("div", { class: "it2-told" }, this.#mode, texts));
  }

  update(view: KnobView, ask: Ask | null, context: Context): void {
    const settled = this.#ask !== null && ask === null;
    this.#view = view;
    this.#ask = ask;
    this.#context = context;
    this.haystack =
      `${view.group} ${view.name} ${view.aliases.join(" ")} ${view.description}`.toLowerCase();
    setText(this.#label, view.name);
    setAttribute(this.#label, "title", knobTitle(view));
    this.#updateMode(view, context.over);
    const off = context.over || !view.enabled || view.locked;
    const why = context.over ? "the run has ended" : view.locked ? "locked" : (view.reason ?? "");
    setAttribute(this.element, "data-off", off ? "" : null);
    this.#editor.enable(!off, why);
    this.#editor.update(view, ask);
    if (settled) this.#localSaid = null;
    this.#updateMembers(view);
    this.#updateSaid(off && !context.over ? { tone: "clamp", text: why } : null);
  }

  #updateMode(view: KnobView, over: boolean): void {
    const select = this.#mode;
    if (select === null) return;
    const known = view.modes.join("\n");
    if (select.dataset.modes !== known) {
      select.dataset.modes = known;
      select.replaceChildren(...view.modes.map((mode) => h("option", { value: mode, text: mode })));
    }
    // A mode says how the value goes with what else drives it: without a driver there is none.
    show(select, view.mode !== null);
    if (document.activeElement !== select || this.#ask === null) select.value = view.mode ?? "";
    select.disabled = over || !view.enabled;
    setAttribute(select, "title", MODES[view.mode ?? ""] ?? "who drives this value");
  }

  #updateMembers(view: KnobView): void {
    const text =
      view.members.length > 1
        ? `× ${view.members.length} groups: ${view.members.map((m) => memberText(m.value)).join(", ")}`
        : "";
    setText(this.#members, text);
    show(this.#members, text !== "");
    if (text) {
      const names = view.members.map((m) => `${m.name} = ${valueText(m.value)}`).join("\n");
      setAttribute(this.#members, "title", names);
    }
  }

  #updateSaid(also: Said | null): void {
    const { store, now } = this.#context ?? { store: null, now: 0 };
    if (store === null) return;
    const context = { now, variable: store.variable, status: store.head.status };
    const said = this.#localSaid ?? knobSaid(this.#view, this.#ask, context) ?? also;
    setText(this.#said, said?.text ?? "");
    setAttribute(this.#said, "data-tone", said?.tone ?? null);
    show(this.#said, said !== null);
  }

  #pickMode(): void {
    if (this.#mode !== null) this.setMode(this.#view.name, this.#mode.value);
  }

  #edited(): void {
    this.#localSaid = null;
    show(this.#confirm, false);
  }

  #commit(value: Json): void {
    this.#localSaid = null;
    if (!this.#view.confirm) {
      this.set(this.#view.name, value);
      return;
    }
    const ask = `Set ${this.#view.name} to ${valueText(value)}?`;
    const close = () => {
      show(this.#confirm, false);
      this.#editor.revert(this.#view);
    };
    const yes = h("button", {
      type: "button",
      class: "it2-danger",
      text: "Set",
      on: {
        click: () => {
          show(this.#confirm, false);
          this.set(this.#view.name, value);
        },
      },
    });
    const no = h("button", { type: "button", text: "Cancel", on: { click: close } });
    this.#confirm.setAttribute("aria-label", ask);
    this.#confirm.replaceChildren(h("span", { text: ask }), yes, no);
    show(this.#confirm, true);
    yes.focus();
  }

  /** What is no value: it goes to the kernel as it is, which refuses it and writes it down. */
  #refuse(asked: Json, why: string): void {
    this.#localSaid = {
      tone: "no",
      text: `asked ${valueText(asked)}, rejected: ${why}; still ${valueText(this.#view.value)}`,
    };
    this.#updateSaid(null);
    this.set(this.#view.name, asked);
  }
}

const MODES: { [mode: string]: string } = {
  rescale: "a scheduler drives this; an edit holds at the next step and rescales the rest of it",
  hold: "the value stays, whatever the scheduler computes, until it is released",
  release: "the scheduler drives this alone",
};

// ------------------------------------------------------------------------------- editors

interface Hands {
  commit(value: Json): void;
  refuse(asked: Json, why: string): void;
  edited(): void;
}

interface Editor {
  readonly kind: string;
  readonly elements: HTMLElement[];
  /** Show the value, unless a hand is on the control or its request is on the way. */
  update(view: KnobView, ask: Ask | null): void;
  revert(view: KnobView): void;
  enable(enabled: boolean, why: string): void;
}

function editorFor(view: KnobView, hands: Hands): Editor {
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

function numberEditor(first: KnobView, dtype: "float" | "int", hands: Hands): Editor {
  const slider = h("input", { type: "range", class: "it2-slider", "aria-label": first.name });
  const field = h("input", {
    type: "text",
    class: "it2-number",
    inputmode: dtype === "int" ? "numeric" : "decimal",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": `${first.name}: value`,
  });
  const cover = h("span", { class: "it2-cover", "aria-hidden": "true" });
  const box = h("div", { class: "it2-number-box" }, field, cover);
  let view = first;
  let track: Track | null = null;
  /** A pointer holds the thumb, or keys move it: nothing from the kernel moves it meanwhile. */
  let held = false;
  let keyTimer: ReturnType<typeof setTimeout> | undefined;
  let pointer = false;
  let typing = false;
  /**
   * A hand is in the field and has typed nothing yet: text that the kernel changed now would be
   * taken for a part of what the hand types next, "0.0029" and "2e-3" for 0.00292e-3.
   */
  let aiming = false;
  let refused = false;
  let asked: Ask | null = null;

  const write = (number: number | null) => {
    field.value = number === null ? "" : exact(number);
    // The field holds the exact value; at rest a long one is covered by a short form.
    const long = number !== null && field.value.length > FITS;
    setText(cover, long ? short(number) : "");
    setAttribute(field, "data-long", long ? "" : null);
    setAttribute(box, "title", long ? field.value : null);
  };
  const showValue = (value: Json) => {
    const number = typeof value === "number" ? value : null;
    write(number);
    if (track !== null && number !== null) slider.value = String(track.tickOf(number));
    setAttribute(slider, "aria-valuetext", number === null ? "no number" : spoken(view, number));
  };
  const valid = (good: boolean) => {
    refused = !good;
    setAttribute(field, "aria-invalid", good ? null : "true");
  };
  const release = () => {
    clearTimeout(keyTimer);
    held = false;
    if (track === null) return;
    hands.commit(track.valueAt(Number(slider.value)));
  };
  slider.addEventListener("pointerdown", () => {
    pointer = true;
  });
  slider.addEventListener("input", () => {
    held = true;
    typing = false;
    valid(true);
    hands.edited();
    if (track === null) return;
    const value = track.valueAt(Number(slider.value));
    write(value);
    setAttribute(slider, "aria-valuetext", spoken(view, value));
  });
  slider.addEventListener("change", () => {
    if (!held) return;
    if (pointer) {
      pointer = false;
      release();
      return;
    }
    // Each key press ends in a change event: wait until the hand rests.
    clearTimeout(keyTimer);
    keyTimer = setTimeout(release, KEY_REST_MS);
  });
  for (const event of ["pointerup", "pointercancel"]) {
    // The change event that ends a drag comes after the pointer's own.
    slider.addEventListener(event, () => setTimeout(() => (pointer = false), 0));
  }
  slider.addEventListener("blur", () => {
    if (held) release();
  });
  slider.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !held) return;
    clearTimeout(keyTimer);
    held = false;
    showValue(view.value);
    event.stopPropagation();
  });
  for (const event of ["focus", "pointerdown", "select"]) {
    field.addEventListener(event, () => (aiming = true));
  }
  field.addEventListener("blur", () => (aiming = false));
  field.addEventListener("input", () => {
    typing = true;
    setText(cover, "");
    setAttribute(field, "data-long", null);
    hands.edited();
    valid(parseNumber(field.value, dtype).ok);
  });
  const enter = () => {
    aiming = false;
    if (!typing) return;
    typing = false;
    const text = field.value;
    const parsed = parseNumber(text, dtype);
    if (parsed.ok) {
      valid(true);
      if (parsed.value === view.value && asked === null) showValue(view.value);
      else hands.commit(parsed.value);
    } else {
      showValue(view.value);
      valid(false);
      hands.refuse(parsed.value ?? text, parsed.why);
    }
  };
  field.addEventListener("change", enter);
  field.addEventListener("pointerdown", () => setAttribute(field, "data-rest", null));
  field.addEventListener("keydown", (event) => {
    // After Enter the value is read, not edited, until a hand is on it again.
    setAttribute(field, "data-rest", event.key === "Enter" ? "" : null);
    if (event.key === "Enter") enter();
    if (event.key !== "Escape") return;
    aiming = false;
    typing = false;
    valid(true);
    showValue(view.value);
    event.stopPropagation();
  });
  return {
    kind: "number",
    elements: [slider, box],
    update(now, ask) {
      const bounds = track === null || now.min !== view.min || now.max !== view.max;
      view = now;
      asked = ask;
      if (bounds) {
        track = trackOf(now);
        slider.style.visibility = track === null ? "hidden" : "";
        if (track !== null) slider.max = String(track.ticks);
      }
      if (held || typing || aiming) return;
      const waits = ask !== null && typeof ask.requested === "number" && !refused;
      showValue(waits ? (ask as Ask).requested : now.value);
    },
    revert(now) {
      held = false;
      typing = false;
      showValue(now.value);
    },
    enable(enabled, why) {
      enableInput(slider, enabled, why);
      enableInput(field, enabled, why);
    },
  };
}

/** Five digits: "-1.2346e-4" is what fits into the field. */
function short(value: number): string {
  return exact(Number(value.toPrecision(5)));
}

function spoken(view: KnobView, value: number): string {
  return view.unit ? `${exact(value)} ${view.unit}` : exact(value);
}

function enableInput(
  input: HTMLInputElement | HTMLSelectElement,
  enabled: boolean,
  why: string,
): void {
  input.disabled = !enabled;
  setAttribute(input, "title", enabled ? null : why);
}

/** A group's value for reading along: what a ratio leaves behind the fourth digit is noise. */
function memberText(value: Json): string {
  return typeof value === "number" ? brief(value) : valueText(value);
}
