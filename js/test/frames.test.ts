// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import golden from "../../tests/golden/panel.json";
import { open } from "../src/index";
import type { Port } from "../src/port";
import type { Batch, PanelMessage, PanelRequest, Row, Snapshot } from "../src/wire";

const [snapshot, batch] = golden.messages.map((each) => each.message) as unknown as [
  Snapshot,
  Batch,
];
const NOTHING = new Float64Array(0);

let abort: AbortController;
let hear: (message: PanelMessage) => void;
let element: HTMLElement;
let sent: PanelRequest[];

beforeEach(() => {
  const nothing = class {
    observe(): void {
      // Nothing changes its size here.
    }
    unobserve(): void {
      // As before.
    }
    disconnect(): void {
      // Nor is anything out of sight.
    }
  };
  vi.stubGlobal("ResizeObserver", nothing);
  vi.stubGlobal("IntersectionObserver", nothing);
  vi.useFakeTimers();
  vi.stubGlobal("requestAnimationFrame", (call: () => void) => setTimeout(call, 16));
  vi.stubGlobal("cancelAnimationFrame", (id: number) => clearTimeout(id));
  abort = new AbortController();
  element = document.createElement("div");
  document.body.replaceChildren(element);
  sent = [];
  const port: Port = {
    send: (request) => sent.push(request),
    listen: (call) => {
      hear = (message) => call(message, NOTHING, []);
      return () => undefined;
    },
  };
  const session = open({
    port,
    client: snapshot.to,
    chart: () => new Promise(() => undefined),
    control: new Promise(() => undefined),
  });
  session.show(element, abort.signal);
  hear(snapshot);
  vi.advanceTimersByTime(500);
});

afterEach(() => {
  abort.abort();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

let n = snapshot.n;

function numbers(step: number, more: Partial<Batch> = {}): Batch {
  n += 1;
  return {
    ...batch,
    n,
    head: { ...snapshot.state, ...(batch.head as NonNullable<Batch["head"]>), step },
    knobs: [],
    knob_names: null,
    actions: null,
    branches: null,
    waiting: null,
    policy: null,
    agents: null,
    context: null,
    subshell: null,
    rows: [],
    marks: [],
    curves: [],
    unrecorded: [],
    received: [],
    faults: [],
    output: null,
    ...more,
  };
}

function step(): string {
  return element.querySelector(".it2-step b")?.textContent ?? "";
}

beforeEach(() => {
  n = snapshot.n;
  // What the first batch changes beside the numbers is drawn by now.
  hear(numbers(2_000));
  vi.advanceTimersByTime(1_000);
});

test("of two batches of numbers that come soon after each other one frame shows the last", () => {
  hear(numbers(2_001));
  vi.advanceTimersByTime(20);
  expect(step()).toBe("2,001");
  hear(numbers(2_002));
  vi.advanceTimersByTime(230);
  expect(step()).toBe("2,001");
  vi.advanceTimersByTime(250);
  hear(numbers(2_003));
  vi.advanceTimersByTime(20);
  expect(step()).toBe("2,003");
});

test("the last batch of numbers is shown although nothing comes after it", () => {
  hear(numbers(2_001));
  vi.advanceTimersByTime(100);
  hear(numbers(2_002));
  vi.advanceTimersByTime(1_000);
  expect(step()).toBe("2,002");
});

const NEWS: [string, Partial<Batch>][] = [
  ["a row", { rows: [{ ...(batch.rows[0] as Row), seq: 900 }] }],
  ["a request that was received", { received: ["a1"] }],
  ["a fault", { faults: ["it broke"] }],
  ["who waits for approval", { waiting: [] }],
  ["another status", { head: { ...snapshot.state, status: "paused", step: 2_002 } }],
  ["a warning", { head: { ...snapshot.state, warnings: ["odd"], step: 2_002 } }],
];

test.each(NEWS)("%s is shown in the next frame", (_, news) => {
  hear(numbers(2_001));
  vi.advanceTimersByTime(100);
  hear(numbers(2_002, news));
  vi.advanceTimersByTime(20);
  expect(step()).toBe("2,002");
});

test("while batches come, their frames tell the time: there are no others", () => {
  const frame = vi.spyOn(globalThis, "requestAnimationFrame");
  for (let at = 0; at < 40; at++) {
    hear(numbers(3_000 + at));
    vi.advanceTimersByTime(250);
  }
  expect(frame.mock.calls.length).toBeLessThanOrEqual(21);
  expect(frame.mock.calls.length).toBeGreaterThanOrEqual(19);
});

const BEAT_MS = 1_000 * (snapshot.heartbeat_s ?? Number.NaN);

test("a page that hears nothing any more asks: the last batch of a run has none after it", () => {
  const hellos = () => sent.filter((each) => each.kind === "hello").length;
  const before = hellos();
  hear(numbers(2_001));
  vi.advanceTimersByTime(2 * BEAT_MS);
  expect(hellos()).toBe(before);
  vi.advanceTimersByTime(3 * BEAT_MS);
  expect(hellos()).toBeGreaterThan(before);
  // A kernel that is gone, or busy without a thread to answer, is not asked each second.
  vi.advanceTimersByTime(600_000);
  expect(hellos()).toBeLessThan(before + 30);
  hear({ ...snapshot, n: n + 1, state: { ...snapshot.state, status: "finished" } });
  const asked = hellos();
  vi.advanceTimersByTime(600_000);
  expect(hellos()).toBe(asked);
});
