/** The knobs: found by search, grouped, a row for each. */

import { h, setText, show } from "./dom";
import { Fold } from "./fold";
import { KnobRow, type SetKnob } from "./knob";
import { askFor, isOver, type Store } from "./store";
import type { KnobView } from "./wire";

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
  #fold: Fold;
  #rows = new Map<string, KnobRow>();
  #order = "";

  constructor(
    private readonly set: SetKnob,
    private readonly setMode: (name: string, mode: string) => void,
    signal: AbortSignal,
  ) {
    this.#fold = new Fold(this.#list, signal);
    const bar = h("div", { class: "it2-bar" }, this.search);
    this.element.append(bar, this.#fold.element, this.#none);
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
    const rows = [...this.#rows.values()];
    const matching = rows.filter((row) => words.every((word) => row.haystack.includes(word)));
    for (const row of rows) show(row.element, matching.includes(row));
    const found = matching.length;
    for (const group of this.#list.children) {
      show(
        group as HTMLElement,
        [...group.querySelectorAll<HTMLElement>(".it2-knob")].some((row) => !row.hidden),
      );
    }
    // Anew: of a row that is out of sight already, nobody tells that it is left out now.
    this.#fold.watch(matching.map((row) => row.element));
    const empty =
      this.#rows.size === 0
        ? "No knobs yet: they appear with the first optimizer step, or with --knob and register_knob."
        : `No knob matches “${this.search.value}”.`;
    setText(this.#none, found === 0 ? empty : "");
    show(this.#none, found === 0);
    show(this.search, this.#rows.size > 4 || this.search.value !== "");
  }
}
