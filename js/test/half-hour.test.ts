import { expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { Series } from "../src/series";
import { EMPTY, MOST_LINES, MOST_MARKS, MOST_ROWS, reduce, type Store } from "../src/store";
import type { Batch, Curve, Mark, Row, Snapshot } from "../src/wire";

const [snapshot, batch] = golden.messages.map((each) => each.message) as unknown as [
  Snapshot,
  Batch,
];

/** Nine batches a second for half an hour, of 22 steps each. */
const BATCHES = 9 * 1_800;
const STEPS = 22;

test("half an hour of batches leaves a page as large as ten minutes do", () => {
  let store: Store = reduce(EMPTY, { kind: "message", message: snapshot, now: 0 });
  const series = new Series();
  const data = new Float64Array(3 * STEPS);
  const curve: Curve = {
    name: "loss",
    branch_id: 0,
    round: 0,
    at: 0,
    count: STEPS,
    thinned: false,
  };
  const size = () => ({
    rows: store.rows.length,
    marks: store.marks.length,
    output: store.output.length,
    faults: store.faults.length,
    points: series.lines("loss").reduce((sum, line) => sum + line.steps.length, 0),
  });
  const sizes: { [part: string]: number }[] = [];
  for (let at = 1; at <= BATCHES; at++) {
    const rows = [{ ...(batch.rows[0] as Row), seq: 100 + at }];
    const marks = [{ ...(batch.marks[0] as Mark), seq: 100 + at }];
    for (let i = 0; i < STEPS; i++) {
      const step = at * STEPS + i;
      data[i] = step;
      data[STEPS + i] = step / 200;
      data[2 * STEPS + i] = step === 5_000 ? 1e6 : Math.sin(step);
    }
    const message: Batch = {
      ...batch,
      n: snapshot.n + at,
      rows,
      marks,
      faults: [`fault ${at}`],
      output: { first: Math.max(0, at - 200), lines: [{ line: at, text: `line ${at}`, look: "" }] },
    };
    store = reduce(store, { kind: "message", message, now: at * 110 });
    series.append(curve, data);
    if (at === BATCHES / 3 || at === BATCHES) sizes.push(size());
  }
  const [third, whole] = sizes;
  expect(store.synced).toBe(true);
  expect(whole?.rows).toBe(MOST_ROWS);
  expect(whole?.marks).toBe(MOST_MARKS);
  expect(whole?.output).toBeLessThanOrEqual(MOST_LINES);
  expect({ ...whole, points: 0 }).toEqual({ ...third, points: 0 });
  expect(whole?.points).toBeLessThanOrEqual(4_100);
  // One step out of 360,000 that stands out is still there.
  expect(Math.max(...(series.lines("loss")[0]?.values ?? []))).toBe(1e6);
});
