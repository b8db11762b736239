/** The policy in force, a sentence each, folded away. */

import { h, show } from "./dom";

export class Rules {
  readonly element = h("details", { class: "it2-rules" });
  #list = h("ul");
  #shown: readonly string[] | null = null;

  constructor() {
    this.element.append(h("summary", { text: "Policy" }), this.#list);
    show(this.element, false);
  }

  update(policy: readonly string[]): void {
    if (policy === this.#shown) return;
    this.#shown = policy;
    this.#list.replaceChildren(...policy.map((text) => h("li", { text })));
    show(this.element, policy.length > 0);
  }
}
