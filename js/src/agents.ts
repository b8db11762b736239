/** The controllers of a run: what they decided and why, what they cost, and the word to them. */

import { askedOf } from "./approvals";
import { h, setText, show } from "./dom";
import { brief, grouped } from "./numbers";
import { isOver, type Store } from "./store";
import type { AgentDecision, AgentRequest, AgentView, Json, Row } from "./wire";
import { hasRounds, roundName, type Tone, toneOf } from "./words";

const SHOWN_DECISIONS = 3;

type Submit = (type: string, payload: { [name: string]: Json }) => void;

export class Agents {
  readonly element = h("details", { class: "it2-agents", open: true });
  #summary = h("summary");
  #list = h("div");
  #context = h("textarea", { rows: 1, "aria-label": "What agents should know about this run" });
  #tell = h("button", { type: "submit", text: "Tell" });
  #told = "";
  #shown = "";
  #rounds = false;

  constructor(private readonly submit: Submit) {
    const form = h("form", {
      class: "it2-context",
      on: {
        submit: (event) => {
          event.preventDefault();
          this.submit("set_context", { context: this.#context.value });
        },
      },
    });
    form.append(h("span", { class: "it2-dim", text: "Context" }), this.#context, this.#tell);
    this.#context.addEventListener("input", () => this.#offer());
    this.element.append(this.#summary, this.#list, form);
    show(this.element, false);
  }

  update(store: Store): void {
    const { agents, context } = store;
    show(this.element, agents.length > 0);
    if (agents.length === 0) return;
    this.#updateContext(context, isOver(store));
    const rows = rowsOf(store.rows, agents);
    this.#rounds = hasRounds(store.head);
    const key = JSON.stringify([agents, [...rows.values()], isOver(store), this.#rounds]);
    if (key === this.#shown) return;
    this.#shown = key;
    setText(this.#summary, summaryOf(agents));
    this.#list.replaceChildren(...agents.map((each) => this.#agent(each, rows, isOver(store))));
  }

  /** The kernel's text takes the place of the field's, unless somebody types there. */
  #updateContext(context: string, over: boolean): void {
    if (this.#context.value === this.#told) this.#context.value = context;
    this.#told = context;
    this.#context.disabled = over;
    this.#offer();
  }

  #offer(): void {
    show(this.#tell, this.#context.value !== this.#told && !this.#context.disabled);
  }

  #agent(agent: AgentView, rows: ReadonlyMap<string, Row>, over: boolean): HTMLElement {
    const line = h("div", { class: "it2-agent" });
    const head = h("div", { class: "it2-agent-head" });
    head.append(h("b", { text: agent.name }));
    if (agent.kind) head.append(h("span", { class: "it2-faint", text: agent.kind }));
    head.append(
      h("span", { class: "it2-said", "data-tone": stateTone(agent), text: stateOf(agent) }),
      h("span", { class: "it2-spacer" }),
      h("span", { class: "it2-dim", text: spentText(agent) }),
    );
    if (!over) head.append(this.#switch(agent));
    line.append(head);
    const trouble = agent.enabled ? agent.error : (agent.reason ?? agent.error);
    if (trouble) line.append(h("div", { class: "it2-said", "data-tone": "no", text: trouble }));
    if (agent.plan) {
      line.append(h("div", {}, h("span", { class: "it2-dim", text: "Plan " }), agent.plan));
    }
    const last = agent.decisions.slice(-SHOWN_DECISIONS).reverse();
    if (last.length > 0) {
      line.append(h("ul", {}, ...last.map((each) => decision(each, rows, this.#rounds))));
    }
    return line;
  }

  #switch({ name, enabled }: AgentView): HTMLElement {
    return h("button", {
      type: "button",
      text: enabled ? "Pause" : "Resume",
      "aria-label": `${enabled ? "Pause" : "Resume"} ${name}`,
      on: { click: () => this.submit("set_agent", { name, enabled: !enabled }) },
    });
  }
}

function decision(
  told: AgentDecision,
  rows: ReadonlyMap<string, Row>,
  rounds: boolean,
): HTMLElement {
  const item = h("li");
  const where = `${rounds ? `${roundName(told.round)}, ` : ""}step ${grouped(told.step)} `;
  item.append(h("span", { class: "it2-faint", text: where }));
  if (told.requests.length === 0)
    item.append(h("span", { text: told.said || "nothing to change" }));
  else if (told.said) item.append(h("span", { text: told.said }));
  for (const each of told.requests) item.append(request(each, rows.get(each.id)));
  return item;
}

function request(told: AgentRequest, row: Row | undefined): HTMLElement {
  const status = row?.status ?? told.status;
  const why = row?.reason || told.why;
  const asked = askedOf({
    type: told.type,
    payload: told.name === null ? {} : { name: told.name, value: told.requested },
  });
  const line = h("div", { class: "it2-asked" });
  const said = status === "applied" || !why ? status : `${status}: ${why}`;
  line.append(
    h("code", { text: asked }),
    h("span", { class: "it2-said", "data-tone": toneOf(status), text: said }),
  );
  if (told.reason) line.append(h("span", { class: "it2-faint", text: told.reason }));
  return line;
}

/** The results of the shown requests: they are there before the agent itself hears of them. */
function rowsOf(rows: readonly Row[], agents: readonly AgentView[]): Map<string, Row> {
  const ids = new Set(
    agents.flatMap((each) => each.decisions.flatMap((one) => one.requests.map((ask) => ask.id))),
  );
  const found = new Map<string, Row>();
  for (const row of rows) {
    if (row.type === "action_result" && row.action_id !== null && ids.has(row.action_id)) {
      found.set(row.action_id, row);
    }
  }
  return found;
}

export function summaryOf(agents: readonly AgentView[]): string {
  const [only] = agents;
  if (only === undefined) return "Agents";
  if (agents.length === 1) return `Agent: ${only.name}, ${stateOf(only)}`;
  const on = agents.filter((each) => each.enabled).length;
  return `Agents: ${agents.length}, ${on} on`;
}

function stateOf({ enabled, thinking }: AgentView): string {
  if (!enabled) return "paused";
  return thinking ? "thinking" : "on";
}

function stateTone({ enabled, thinking }: AgentView): Tone {
  if (!enabled) return "clamp";
  return thinking ? "wait" : "ok";
}

/** What was used up, of how much where there is a cap: `12,345 of 50,000 tokens · 0.031 of 0.5`. */
export function spentText(agent: AgentView): string {
  const parts = [`${grouped(agent.calls)} call${agent.calls === 1 ? "" : "s"}`];
  if (agent.tokens !== null) {
    const most = agent.max_tokens === null ? "" : ` of ${grouped(agent.max_tokens)}`;
    parts.push(`${grouped(agent.tokens)}${most} tokens`);
  }
  if (agent.cost !== null) {
    const most = agent.max_cost === null ? "" : ` of ${brief(agent.max_cost)}`;
    parts.push(`cost ${brief(agent.cost)}${most}`);
  }
  return parts.join(" · ");
}
