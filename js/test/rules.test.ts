// @vitest-environment jsdom
import { expect, test } from "vitest";
import { Rules } from "../src/rules";

test("the rules in force are listed as text, and nothing is shown without any", () => {
  const rules = new Rules();
  rules.update([]);
  expect(rules.element.hidden).toBe(true);
  rules.update(["<b>lr</b> is locked for agent", "agent may not use pause"]);
  expect(rules.element.hidden).toBe(false);
  expect(rules.element.querySelector("b")).toBeNull();
  expect([...rules.element.querySelectorAll("li")].map((each) => each.textContent)).toEqual([
    "<b>lr</b> is locked for agent",
    "agent may not use pause",
  ]);
});
