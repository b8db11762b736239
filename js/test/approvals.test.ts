import { expect, test } from "vitest";
import { Approvals, wording } from "../src/approvals";
import { EMPTY } from "../src/store";
import type { Waiting } from "../src/wire";

const WAITING: Waiting = {
  v: 2,
  id: "a1",
  type: "set_knob",
  payload: { name: "lr", value: 3e-4 },
  source: "agent",
  actor: "llm",
  reason: "agent needs a person's approval for lr",
  until: null,
};

test("a request that waits is approved or refused by its own buttons", () => {
  const answers: [string, boolean][] = [];
  const approvals = new Approvals((id, approve) => answers.push([id, approve]));
  approvals.update({ ...EMPTY, waiting: [WAITING] });
  const [approve, refuse] = approvals.element.querySelectorAll("button");
  expect(approvals.element.hidden).toBe(false);
  expect(approve?.getAttribute("aria-label")).toBe("Approve: agent (llm) asks: lr = 3e-4");
  approve?.click();
  refuse?.click();
  expect(answers).toEqual([
    ["a1", true],
    ["a1", false],
  ]);
  approvals.update({ ...EMPTY, waiting: [] });
  expect(approvals.element.hidden).toBe(true);
});

test("what is asked is told in words, as text", () => {
  const odd = { ...WAITING, type: "switch", payload: { to: "<img>" }, actor: null };
  expect(wording(odd)).toBe('agent asks: switch to="<img>"');
  const approvals = new Approvals(() => undefined);
  approvals.update({ ...EMPTY, waiting: [odd], policy: ["<b>lr</b> is locked"] });
  expect(approvals.element.querySelector("img")).toBeNull();
  expect(approvals.rules.querySelector("b")).toBeNull();
  expect(approvals.rules.textContent).toContain("<b>lr</b> is locked");
});
