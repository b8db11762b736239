// @vitest-environment jsdom
import { expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { Approvals, askedOf } from "../src/approvals";
import type { Snapshot } from "../src/wire";

const snapshot = golden.messages[0]?.message as unknown as Snapshot;
const { waiting } = snapshot.state;

test("what an agent asks is told, and a person's word goes back", () => {
  const answers: [string, boolean][] = [];
  const approvals = new Approvals((id, approve) => answers.push([id, approve]));
  approvals.update(waiting);
  expect(approvals.element.hidden).toBe(false);
  expect(approvals.element.textContent).toContain("agent as llm asks: lr → 1e-5");
  expect(approvals.element.textContent).toContain("flat for 300 steps");
  for (const button of approvals.element.querySelectorAll("button")) button.click();
  expect(answers).toEqual([
    ["agent-0001", true],
    ["agent-0001", false],
  ]);
  approvals.update([]);
  expect(approvals.element.hidden).toBe(true);
});

test("other actions are told with their arguments, as text", () => {
  const evil = "<img src=x>";
  expect(askedOf({ type: "load_checkpoint", payload: { path: evil, keep_knobs: true } })).toBe(
    `load_checkpoint path "${evil}" keep_knobs on`,
  );
});
