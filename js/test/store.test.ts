import { expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { Channel, type Clock } from "../src/channel";
import type { Port } from "../src/port";
import { noticesOf } from "../src/status";
import { askFor, EMPTY, isOver, mergeOutput, mergeRows, reduce, type Store } from "../src/store";
import type { Batch, PanelMessage, PanelRequest, Row, Snapshot } from "../src/wire";

const [snapshot, batch] = golden.messages.map((each) => each.message) as unknown as [
  Snapshot,
  Batch,
];

function fold(store: Store, ...messages: PanelMessage[]): Store {
  return messages.reduce(
    (now, message) => reduce(now, { kind: "message", message, now: 1 }),
    store,
  );
}

const quiet: Batch = {
  ...batch,
  head: null,
  knobs: [],
  rows: [],
  marks: [],
  curves: [],
  received: [],
  faults: [],
  output: null,
};

test("a missed number asks for a snapshot, which heals it", () => {
  const before = fold(EMPTY, snapshot, batch);
  const missed = fold(before, { ...quiet, n: 10 });
  expect(missed.synced).toBe(false);
  expect(fold(missed, { ...quiet, n: 11 }).n).toBe(8);
  const healed = fold(missed, { ...snapshot, n: 11 });
  expect([healed.synced, healed.n]).toEqual([true, 11]);
  expect(healed.rows.map((row) => row.seq)).toEqual([4, 22, 33, 41, 48, 52]);
});

test("a heartbeat tells of batches that were lost", () => {
  const before = fold(EMPTY, snapshot, batch);
  expect(fold(before, { v: 2, kind: "heartbeat", n: 8 }).synced).toBe(true);
  expect(fold(before, { v: 2, kind: "heartbeat", n: 9 }).synced).toBe(false);
});

test("batches before the snapshot and batches that came twice change nothing", () => {
  expect(fold(EMPTY, batch).n).toBe(-1);
  const once = fold(EMPTY, snapshot, batch);
  expect(fold(once, batch).rows).toBe(once.rows);
});

test("a request is pending until its own result is there", () => {
  const asked = reduce(fold(EMPTY, snapshot), {
    kind: "asked",
    ask: {
      id: "ask-0001",
      type: "set_knob",
      name: "lr",
      requested: 2e-5,
      sentAt: 3,
      received: false,
    },
  });
  expect(askFor(asked, "lr")?.received).toBe(false);
  const held = fold(asked, { ...quiet, n: 8, received: ["ask-0001"] });
  expect(askFor(held, "lr")?.received).toBe(true);
  const done = fold(held, { ...batch, n: 9 });
  expect(askFor(done, "lr")).toBeNull();
  expect(done.knobs.lr?.value).toBe(2e-5);
});

test("rows come in order, each once, and are bounded", () => {
  const row = (seq: number): Row => ({ ...(snapshot.rows[0] as Row), seq });
  expect(mergeRows([row(1), row(5)], [row(3), row(5)]).map((each) => each.seq)).toEqual([1, 3, 5]);
  const many = Array.from({ length: 1_000 }, (_, i) => row(i));
  expect(mergeRows([], many)).toHaveLength(400);
});

test("printed lines are replaced by number, dropped when they are over, and bounded", () => {
  const lines = (first: number, ...numbers: number[]) => ({
    first,
    lines: numbers.map((line) => ({ line, text: `at ${numbers.length}`, look: "" })),
  });
  const have = mergeOutput([], lines(0, 3, 4));
  expect(mergeOutput(have, null)).toBe(have);
  const more = mergeOutput(have, lines(0, 4, 5, 6));
  expect(more.map((each) => [each.line, each.text])).toEqual([
    [3, "at 2"],
    [4, "at 3"],
    [5, "at 3"],
    [6, "at 3"],
  ]);
  // In a flood the newest came first: what was left out is put where it belongs.
  expect(mergeOutput(more, lines(0, 1, 2)).map((each) => each.line)).toEqual([1, 2, 3, 4, 5, 6]);
  expect(mergeOutput(more, lines(6)).map((each) => each.line)).toEqual([6]);
  const flood = Array.from({ length: 1_000 }, (_, i) => i);
  expect(mergeOutput(more, lines(0, ...flood))).toHaveLength(300);
});

test("a snapshot brings all that was printed, a batch what changed", () => {
  const first = fold(EMPTY, snapshot);
  expect(first.output.map((each) => each.line)).toEqual([0, 1, 2, 3, 4, 5]);
  const next = fold(first, batch);
  expect(next.output.at(-1)?.text).toContain("38%");
  expect(next.output.slice(0, 5)).toEqual(first.output.slice(0, 5));
  expect(fold(next, { ...quiet, n: 9 }).output).toBe(next.output);
});

test("a run is over when it is stopped, finished or failed", () => {
  const store = fold(EMPTY, snapshot);
  const over = (status: Store["head"]["status"]) =>
    isOver({ ...store, head: { ...store.head, status } });
  expect(["running", "paused", "created"].map((s) => over(s as "running"))).not.toContain(true);
  expect(["stopped", "finished", "failed"].map((s) => over(s as "failed"))).not.toContain(false);
});

// ----------------------------------------------------------------------------- channel

class FakeClock implements Clock {
  time = 0;
  #due: { at: number; callback: () => void }[] = [];
  now = () => this.time;
  later = (callback: () => void, ms: number) => {
    const one = { at: this.time + ms, callback };
    this.#due.push(one);
    return () => {
      this.#due = this.#due.filter((each) => each !== one);
    };
  };
  pass(ms: number): void {
    this.time += ms;
    const ripe = this.#due.filter((each) => each.at <= this.time);
    this.#due = this.#due.filter((each) => each.at > this.time);
    for (const each of ripe) each.callback();
  }
}

function line() {
  const sent: PanelRequest[] = [];
  let hear: (message: PanelMessage) => void = () => undefined;
  const port: Port = {
    send: (request) => void sent.push(request),
    listen(onMessage) {
      hear = (message) => onMessage(message, new Float64Array(0), []);
      return () => {
        hear = () => undefined;
      };
    },
  };
  const clock = new FakeClock();
  const channel = new Channel(port, snapshot.to, EMPTY, () => undefined, clock);
  return { sent, clock, channel, hear: (message: PanelMessage) => hear(message) };
}

test("hello is said again, ever more rarely, until a snapshot is there", () => {
  const { sent, clock, channel, hear } = line();
  channel.hello();
  channel.hello();
  expect(sent).toHaveLength(1);
  clock.pass(2_000);
  expect(sent).toHaveLength(2);
  clock.pass(2_000);
  expect(sent).toHaveLength(2);
  clock.pass(2_000);
  expect(sent).toHaveLength(3);
  hear(snapshot);
  clock.pass(600_000);
  expect(sent).toHaveLength(3);
});

test("a gap asks for one snapshot", () => {
  const { sent, channel, hear } = line();
  channel.hello();
  hear(snapshot);
  hear({ ...quiet, n: 10 });
  hear({ ...quiet, n: 11 });
  expect(sent.map((each) => each.kind)).toEqual(["hello", "hello"]);
});

test("an answer to another page is not ours", () => {
  const { channel, hear } = line();
  hear({ ...snapshot, to: "another" });
  expect(channel.store.synced).toBe(false);
});

test("batches are acknowledged now and then, not one by one", () => {
  const { sent, hear } = line();
  hear(snapshot);
  for (let i = 0; i < 120; i++) hear({ ...quiet, n: 8 + i });
  expect(sent.filter((each) => each.kind === "ack").map((each) => "n" in each && each.n)).toEqual([
    57, 107,
  ]);
});

test("a request carries what was seen, and an id of its own", () => {
  const { sent, channel, hear } = line();
  hear(snapshot);
  const ids = [
    channel.submit("set_knob", { name: "lr", value: 2.5e-6 }),
    channel.submit("pause", {}),
  ];
  expect(new Set(ids).size).toBe(2);
  const [first] = sent.filter((each) => each.kind === "submit");
  expect(first).toMatchObject({
    action: {
      type: "set_knob",
      payload: { name: "lr", value: 2.5e-6 },
      observed: { step: 1204, metrics: { loss: 0.2713, grad_norm: "nan" } },
    },
  });
  expect(JSON.stringify(first)).toContain('"value":0.0000025');
});

// ------------------------------------------------------------------------------- words

test("a warning can be put away, and comes again when it comes again", () => {
  const said = (store: Store) => noticesOf(store, 1).filter((each) => each.text === "no 'los'");
  const warned = (store: Store, n: number, warnings: string[]) =>
    fold(store, { ...quiet, n, head: { ...store.head, warnings } });
  let store = warned(fold(EMPTY, snapshot), snapshot.n + 1, ["no 'los'", "another"]);
  expect(said(store)).toMatchObject([{ closes: true }]);
  store = reduce(store, { kind: "dismissed", text: "no 'los'" });
  store = warned(store, snapshot.n + 2, ["no 'los'", "another"]);
  expect(said(store)).toEqual([]);
  expect(noticesOf(store, 1).map((each) => each.text)).toContain("another");
  store = warned(store, snapshot.n + 3, []);
  store = warned(store, snapshot.n + 4, ["no 'los'"]);
  expect(said(store)).toHaveLength(1);
});

test("what is said when nobody answers depends on where the panel stands", () => {
  const text = (place: Store["place"], part: Partial<Store>) =>
    noticesOf({ ...fold(EMPTY, snapshot), faults: [], ...part, place }, 20_000)
      .map((notice) => notice.text)
      .join(" ");
  const ask = { id: "x", type: "pause", name: null, requested: null, sentAt: 0, received: false };
  const cases: [Partial<Store>, string, string][] = [
    [
      { connected: false },
      "Run `%load_ext it2nb` and the cells above it, then the cell again.",
      "connects again by itself",
    ],
    [{ heardAt: 0 }, "No word from the kernel", "No word from the run's server"],
    [{ heardAt: 20_000, asks: { x: ask } }, "until the cell ends", "not confirmed"],
  ];
  for (const [part, notebook, page] of cases) {
    expect(text("notebook", part)).toContain(notebook);
    expect(text("page", part)).toContain(page);
    expect(text("page", part)).not.toMatch(/cell|kernel/i);
  }
});
