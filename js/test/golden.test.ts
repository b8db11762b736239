import { expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { numbersOf } from "../src/port";
import { Series } from "../src/series";
import { askFor, EMPTY, reduce } from "../src/store";
import type { PanelMessage, PanelRequest, Snapshot } from "../src/wire";
import { actionSaid, knobSaid, rowRequest } from "../src/words";

const messages = golden.messages as unknown as { message: PanelMessage; buffer: string }[];
const requests = golden.requests as unknown as PanelRequest[];

function buffer(text: string): Float64Array {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  return numbersOf(new DataView(bytes.buffer));
}

test("a snapshot and a batch make the store", () => {
  let store = EMPTY;
  for (const { message } of messages.slice(0, 2)) {
    store = reduce(store, { kind: "message", message, now: 5 });
  }
  expect(store).toMatchObject({ synced: true, n: 8, title: "digits-cnn", variable: "session" });
  expect(store.head.step).toBe(1215);
  expect(store.knobs.lr?.value).toBe(2e-5);
  expect(store.rows.map((row) => row.seq)).toEqual([4, 22, 33, 41, 48, 52]);
  expect(store.marks.map((mark) => mark.seq)).toEqual([33, 48, 52]);
  expect(store.faults).toHaveLength(1);
});

test("each result is told in a line", () => {
  let store = EMPTY;
  for (const { message } of messages.slice(0, 2)) {
    store = reduce(store, { kind: "message", message, now: 5 });
  }
  const said = (name: string) => {
    const view = store.knobs[name];
    if (view === undefined) throw new Error(name);
    return knobSaid(view, askFor(store, name), { now: 0, place: "notebook" })?.text;
  };
  expect(said("lr")).toBe("asked 2e-5, applied 2e-5, from step 1,213");
  expect(said("weight_decay")).toBe("magic asked 2, applied 1 (max), from step 640");
  expect(said("clip")).toBe('asked "abc", rejected: not a number; still 1');
  expect(said("dropout.p")).toBe("asked 0.2, waits for the next step");
  expect(store.rows.map((row) => rowRequest(row))).toEqual([
    "note",
    "evaluate",
    "weight_decay 0.01 → 2",
    'clip 1 → "abc"',
    "lr 0.001 → 3e-4",
    "lr 3e-4 → 2e-5",
  ]);
  expect(store.said && actionSaid(store.said).text).toBe(
    "evaluate: applied, val_loss 0.412, seconds 0.3, step 400",
  );
});

test("a reason does not repeat the asked value", () => {
  const snapshot = messages[0]?.message as Snapshot;
  const view = snapshot.state.knobs.find((each) => each.name === "clip");
  if (view?.last == null) throw new Error("the golden file has changed");
  const last = { ...view.last, reason: "'abc' is not a number" };
  const context = { now: 0, place: "notebook" as const };
  expect(knobSaid({ ...view, last }, null, context)?.text).toBe(
    'asked "abc", rejected: not a number; still 1',
  );
});

test("curves come out of the buffer, a hole stays a hole", () => {
  const series = new Series();
  for (const { message, buffer: text } of messages.slice(0, 2)) {
    if (message.kind !== "snapshot" && message.kind !== "batch") throw new Error(message.kind);
    for (const curve of message.curves) series.append(curve, buffer(text));
  }
  const [loss] = series.lines("loss");
  expect(loss?.steps.at(-1)).toBe(1215);
  expect(loss?.steps).toHaveLength(302 + 11);
  expect(loss?.values[100]).toBeNaN();
  expect(series.lines("acc")[0]?.values.at(-1)).toBeCloseTo(0.93, 1);
});

test("every request that a page can send is in the golden file", () => {
  const kinds: PanelRequest["kind"][] = [
    "hello",
    "watch",
    "submit",
    "answer",
    "window",
    "rows",
    "asset",
    "ack",
    "bye",
  ];
  expect(requests.map((request) => request.kind)).toEqual(kinds);
});
