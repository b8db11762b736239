/** A knob's row: name, mode, editor, and what became of the last request for it. */

import { h, setAttribute, setText, show } from "./dom";
import type { Editor } from "./editor";
import { editorFor } from "./editors";
import { brief, saidText, valueText } from "./numbers";
import type { Ask, Store } from "./store";
import type { Json, KnobView } from "./wire";
import { knobSaid, knobTitle, type Said, toneOf, withExact } from "./words";

export type SetKnob = (name: string, value: Json, mode?: string) => void;

export interface Context {
  store: Store;
  now: number;
  over: boolean;
}

export class KnobRow {
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
  /** The refused request that is done with: its value was replaced by the one in force. */
  #doneWith: string | null = null;
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
      keep: () => this.#keep(),
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
    setName(this.#label, view.name);
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
    const { store, now, over } = this.#context ?? { store: null, now: 0, over: false };
    if (store === null) return;
    const context = { now, place: store.place };
    const done = this.#view.last?.id === this.#doneWith;
    const view = done ? { ...this.#view, last: null } : this.#view;
    const said = this.#localSaid ?? knobSaid(view, this.#ask, context) ?? also;
    setText(this.#said, said?.text ?? "");
    setAttribute(this.#said, "data-tone", said?.tone ?? null);
    setAttribute(this.#said, "data-old", over && this.#localSaid === null ? "" : null);
    setAttribute(this.#said, "title", said?.exact ?? null);
    show(this.#said, said !== null);
  }

  #pickMode(): void {
    if (this.#mode !== null) this.setMode(this.#view.name, this.#mode.value);
  }

  #edited(): void {
    this.#localSaid = null;
    show(this.#confirm, false);
  }

  #keep(): void {
    const { last } = this.#view;
    if (last !== null && toneOf(last.status) === "no") this.#doneWith = last.id;
    this.#updateSaid(null);
  }

  #commit(value: Json): void {
    this.#localSaid = null;
    if (!this.#view.confirm) {
      this.set(this.#view.name, value);
      return;
    }
    const ask = `Set ${this.#view.name} to ${saidText(value)}?`;
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
    const still = this.#view.value;
    this.#localSaid = withExact((write) => ({
      tone: "no",
      text: `asked ${write(asked)}, rejected: ${why}; still ${write(still)}`,
    }));
    this.#updateSaid(null);
    this.set(this.#view.name, asked);
  }
}

const MODES: { [mode: string]: string } = {
  rescale: "a scheduler drives this; an edit holds at the next step and rescales the rest of it",
  hold: "the value stays, whatever the scheduler computes, until it is released",
  release: "the scheduler drives this alone",
};

/** A long name goes on in a second line, after a dot or an underscore if it can. */
function setName(label: HTMLElement, name: string): void {
  if (label.textContent === name) return;
  const parts = name.split(/(?<=[._])/);
  label.replaceChildren(...parts.flatMap((part) => [part, h("wbr")]));
}

/** A group's value for reading along: what a ratio leaves behind the fourth digit is noise. */
function memberText(value: Json): string {
  return typeof value === "number" ? brief(value) : valueText(value);
}
