/** Requests that wait for a person: what is asked, by whom, and the two answers. */

import { h, show } from "./dom";
import { saidText } from "./numbers";
import type { Waiting } from "./wire";

export class Approvals {
  readonly element = h("section", { class: "it2-approvals", "aria-label": "Waiting for approval" });
  #shown = "";

  constructor(private readonly answer: (id: string, approve: boolean) => void) {
    show(this.element, false);
  }

  update(waiting: readonly Waiting[]): void {
    const key = JSON.stringify(waiting);
    if (key === this.#shown) return;
    this.#shown = key;
    show(this.element, waiting.length > 0);
    this.element.replaceChildren(...waiting.map((each) => this.#line(each)));
  }

  #line(waiting: Waiting): HTMLElement {
    const who = [waiting.source, waiting.actor].filter(Boolean).join(" as ") || "somebody";
    const asked = askedOf(waiting);
    const line = h("div", { class: "it2-notice it2-wait" });
    line.append(
      h("span", { class: "it2-grow" }, `${who} asks: `, h("code", { text: asked })),
      this.#button("Approve", "it2-primary", waiting, asked, true),
      this.#button("Refuse", "it2-danger", waiting, asked, false),
    );
    if (waiting.reason)
      line.append(h("span", { class: "it2-faint it2-why", text: waiting.reason }));
    return line;
  }

  #button(text: string, look: string, { id }: Waiting, asked: string, yes: boolean): HTMLElement {
    return h("button", {
      type: "button",
      class: look,
      text,
      "aria-label": `${text}: ${asked}`,
      on: { click: () => this.answer(id, yes) },
    });
  }
}

/** A request in a line: `lr → 1e-5`, `load_checkpoint path "best"`. */
export function askedOf({ type, payload }: Pick<Waiting, "type" | "payload">): string {
  const { name, value } = payload;
  if (type === "set_knob" && typeof name === "string") return `${name} → ${saidText(value)}`;
  const parts = Object.entries(payload).map(([key, each]) => `${key} ${saidText(each)}`);
  return [type, ...parts].join(" ");
}
