// @vitest-environment jsdom
import { expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { Agents, spentText, summaryOf } from "../src/agents";
import { EMPTY, reduce, type Store } from "../src/store";
import type { AgentView, Batch, Json, Row, Snapshot } from "../src/wire";

const snapshot = golden.messages[0]?.message as unknown as Snapshot;
const batch = golden.messages[1]?.message as unknown as Batch;
const after = (store: Store, message: Snapshot | Batch): Store =>
  reduce(store, { kind: "message", message, now: 0 });
const known = after(EMPTY, snapshot);
const agent = known.agents[0] as AgentView;

function shown(store: Store = known) {
  const asked: [string, { [name: string]: Json }][] = [];
  const agents = new Agents((type, payload) => asked.push([type, payload]));
  agents.update(store);
  const field = agents.element.querySelector("textarea") as HTMLTextAreaElement;
  const button = (name: string) =>
    [...agents.element.querySelectorAll("button")].find((each) => each.textContent === name);
  return { agents, asked, field, button, text: () => agents.element.textContent ?? "" };
}

test("nothing is shown while there is no agent", () => {
  expect(shown(EMPTY).agents.element.hidden).toBe(true);
});

test("plan, decisions with reasons, tokens and money are told, as text", () => {
  const { agents, text } = shown();
  expect(agents.element.hidden).toBe(false);
  expect(text()).toContain("Plan lr 0.0003: the first round");
  expect(text()).toContain("step 1,000 Both losses fall");
  expect(text()).toContain("lr → 3e-4");
  expect(text()).toContain("flat for 300 steps");
  expect(text()).toContain("rejected: agent may not use pause");
  expect(text()).toContain("12 calls · 41,230 of 100,000 tokens · cost 0.0312 of 0.5");
  expect(agents.element.querySelector("img")).toBeNull();
  expect(summaryOf(known.agents)).toBe("Agent: llm, thinking");
});

test("a result tells of a request before the agent hears of it", () => {
  const row = { ...(snapshot.rows.at(-1) as Row), seq: 900, type: "action_result" };
  const clamped: Row = { ...row, action_id: "agent-0001", status: "clamped", reason: "min is 0.1" };
  const { agents, text } = shown();
  expect(text()).not.toContain("clamped");
  agents.update({ ...known, rows: [...known.rows, clamped] });
  expect(text()).toContain("clamped: min is 0.1");
});

test("an agent is paused and resumed by its name", () => {
  const { agents, asked, button } = shown();
  button("Pause")?.click();
  agents.update({ ...known, agents: [{ ...agent, enabled: false, reason: "tokens used up" }] });
  expect(agents.element.textContent).toContain("tokens used up");
  button("Resume")?.click();
  expect(asked).toEqual([
    ["set_agent", { name: "llm", enabled: false }],
    ["set_agent", { name: "llm", enabled: true }],
  ]);
});

test("the context is sent when somebody changed it, and taken from the kernel otherwise", () => {
  const { agents, asked, field, button } = shown();
  expect(field.value).toBe("");
  expect(button("Tell")?.hidden).toBe(true);
  const next = after(known, batch);
  agents.update(next);
  expect(field.value).toBe("a small net on digits; stop at 98 %");
  field.value = "be brave";
  field.dispatchEvent(new Event("input"));
  expect(button("Tell")?.hidden).toBe(false);
  agents.update({ ...next, context: "somebody else's" });
  expect(field.value).toBe("be brave");
  field.form?.dispatchEvent(new Event("submit", { cancelable: true }));
  expect(asked).toEqual([["set_context", { context: "be brave" }]]);
  agents.update({ ...next, context: "be brave" });
  expect(button("Tell")?.hidden).toBe(true);
});

test("after the end nothing can be asked for", () => {
  const over: Store = { ...known, head: { ...known.head, status: "finished" } };
  const { field, button } = shown(over);
  expect(button("Pause")).toBeUndefined();
  expect(field.disabled).toBe(true);
});

test("what nobody counts is not told", () => {
  const quiet: AgentView = { ...agent, calls: 1, tokens: null, cost: null };
  expect(spentText(quiet)).toBe("1 call");
  expect(spentText({ ...quiet, tokens: 5, max_tokens: null })).toBe("1 call · 5 tokens");
  expect(summaryOf([agent, { ...agent, enabled: false }])).toBe("Agents: 2, 1 on");
});

test("a batch without agents changes none", () => {
  expect(after(known, { ...batch, agents: null, context: null }).agents).toBe(known.agents);
  expect(after(known, { ...batch, agents: [], context: null }).agents).toEqual([]);
});

test("decisions say their round where there are several", () => {
  expect(shown().text()).toContain("round 1, step 1,000 Both losses fall");
  const head = { ...known.head, max_rounds: null };
  expect(shown({ ...known, head }).text()).not.toContain("round 1, step");
});
