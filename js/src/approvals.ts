/** Requests that wait for a person, and the rules that made them wait. */

import { h, show } from "./dom";
import { valueText } from "./numbers";
import type { Store } from "./store";
import type { Json, Waiting } from "./wire";

export class Approvals {
  /** One line a request, with its two buttons. */
  readonly element = h("div", {
    class: "it2-approvals",
    role: "group",
    "aria-label": "Waiting for approval",
  });
  /** The rules, folded away. */
  readonly rules = h("details", { class: "it2-rules" });

  #list = h("ul");
  #waiting: readonly Waiting[] | null = null;
  #policy: readonly string[] | null = null;

  constructor(private readonly answer: (id: string, approve: boolean) => void) {
    this.rules.append(h("summary", { text: "Policy" }), this.#list);
    show(this.element, false);
    show(this.rules, false);
  }

  update(store: Store): void {
    if (store.waiting !== this.#waiting) {
      this.#waiting = store.waiting;
      this.element.replaceChildren(...store.waiting.map((each) => this.#line(each)));
      show(this.element, store.waiting.length > 0);
    }
    if (store.policy !== this.#policy) {
      this.#policy = store.policy;
      this.#list.replaceChildren(...store.policy.map((text) => h("li", { text })));
      show(this.rules, store.policy.length > 0);
    }
  }

  #line(waiting: Waiting): HTMLElement {
    const what = wording(waiting);
    const button = (text: string, approve: boolean): HTMLElement =>
      h("button", {
        type: "button",
        text,
        "aria-label": `${text}: ${what}`,
        on: { click: () => this.answer(waiting.id, approve) },
      });
    return h(
      "div",
      { class: "it2-notice it2-wait" },
      h("span", { class: "it2-grow", text: what, title: waiting.reason }),
      button("Approve", true),
      button("Refuse", false),
    );
  }
}

/** Who asks for what: "agent (llm) asks: lr = 3e-4". */
export function wording({ source, actor, type, payload }: Waiting): string {
  const who = actor === null || actor === source ? source : `${source} (${actor})`;
  const { name, value } = payload;
  const what =
    type === "set_knob" && typeof name === "string"
      ? `${name} = ${valueText(value ?? null)}`
      : [type, ...Object.entries(payload).map(pair)].join(" ");
  return `${who ?? "somebody"} asks: ${what}`;
}

function pair([key, value]: [string, Json]): string {
  return `${key}=${valueText(value)}`;
}
