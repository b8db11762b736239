// @vitest-environment jsdom
import { beforeEach, expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { JournalView } from "../src/journal";
import type { Row, Snapshot } from "../src/wire";

const snapshot = golden.messages[0]?.message as unknown as Snapshot;
const last = snapshot.rows.at(-1) as Row;

let journal: JournalView;

beforeEach(() => {
  journal = new JournalView(
    () => {},
    () => {},
    new AbortController().signal,
  );
});

function shown(...some: Row[]): HTMLTableCellElement[] {
  journal.update(some, [], "session", false);
  return [...journal.element.querySelectorAll<HTMLTableCellElement>("td.it2-say")];
}

test("the row of a note has its text", () => {
  const asked = { ...last, action: "note", name: null, requested: "try a larger lr", text: "" };
  expect(shown(asked).map((cell) => cell.textContent)).toEqual(["note try a larger lr"]);
});

test("a long remark is cut in its row, and the title has all of it", () => {
  const text = `smooth 0.5 -> 0; ${"the data goes on where the loop is; ".repeat(20)}end`;
  const [cell] = shown({ ...last, type: "action_result", action: "goto", name: null, text });
  expect(cell?.textContent).toContain("smooth 0.5 -> 0; the data goes on");
  expect(cell?.textContent?.endsWith("…")).toBe(true);
  expect((cell?.textContent ?? "").length).toBeLessThan(320);
  expect(cell?.title.endsWith("; end")).toBe(true);
});

test("a row is short where arithmetic left noise, and its title is exact", () => {
  const noisy = { ...last, before: 0.1 + 0.2, requested: 0.013499999999999998 };
  const [short, plain] = shown(last, { ...noisy, seq: 99 });
  expect(short?.textContent).toBe("lr 0.3 → 0.0135");
  expect(short?.title).toBe("lr 0.30000000000000004 → 0.013499999999999998");
  expect(plain?.title).toBe("");
});
