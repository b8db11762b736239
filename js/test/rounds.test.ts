// @vitest-environment jsdom
import { expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { JournalView } from "../src/journal";
import { Status } from "../src/status";
import { EMPTY, reduce, type Store } from "../src/store";
import type { Batch, Row, Snapshot } from "../src/wire";

const snapshot = golden.messages[0]?.message as unknown as Snapshot;
const batch = golden.messages[1]?.message as unknown as Batch;

function after(...messages: (Snapshot | Batch)[]): Store {
  return messages.reduce(
    (store: Store, message) => reduce(store, { kind: "message", message, now: 0 }),
    EMPTY,
  );
}

function headText(store: Store): string {
  const status = new Status(() => {});
  status.update(store, 0);
  const shown = [...status.head.children].filter((each) => !(each as HTMLElement).hidden);
  return shown.map((each) => each.textContent).join(" · ");
}

function inRound(round: number, max_rounds: number | null): Store {
  const { state } = snapshot;
  return after({ ...snapshot, state: { ...state, round, max_rounds } });
}

test("the head says which round of how many runs", () => {
  expect(headText(after(snapshot))).toContain("running · round 1 of 4 · step 1,204");
  const next = { ...batch, head: { ...(batch.head as NonNullable<typeof batch.head>), round: 1 } };
  expect(headText(after(snapshot, next))).toContain("round 2 of 4");
  expect(headText(inRound(4, 4))).toContain("round 5 · step");
});

test("where there is one round only, none is named", () => {
  for (const most of [null, 1]) expect(headText(inRound(0, most))).not.toContain("round");
});

test("rows say their round once there are several", () => {
  const journal = new JournalView(
    () => {},
    () => {},
    new AbortController().signal,
  );
  const cells = () =>
    [...journal.element.querySelectorAll("tr")].map((line) =>
      [...line.children]
        .filter((each) => !(each as HTMLElement).hidden)
        .slice(0, 3)
        .map((each) => each.textContent),
    );
  const row = { ...(snapshot.rows.at(-1) as Row), round: 1 };
  journal.update([row], [], "session", false);
  expect(cells()).toEqual([
    ["seq", "step", "time"],
    ["48", "981", expect.any(String)],
  ]);
  journal.update([row], [], "session", true);
  expect(cells()).toEqual([
    ["seq", "round", "step"],
    ["48", "2", "981"],
  ]);
});
