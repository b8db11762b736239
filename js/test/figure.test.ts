import { expect, test } from "vitest";
import { type Colors, figureOf, type Look, short } from "../src/figure";
import type { Line } from "../src/series";
import { EMPTY } from "../src/store";
import type { Mark } from "../src/wire";

const colors: Colors = {
  line: "blue",
  faint: "grey",
  grid: "silver",
  text: "black",
  bad: "red",
  surface: "white",
  font: "sans",
};
const look: Look = { log: false, axis: "step", smooth: 0, zoom: null, selected: null };

function line(values: number[], part: Partial<Line> = {}): Line {
  const steps = values.map((_, i) => i);
  const times = steps.map((step) => step / 10);
  return { branch: 0, round: 0, steps, times, values, thinned: 0, ...part };
}

function mark(seq: number, step: number, label = "lr 1e-3"): Mark {
  return { seq, step, t: step / 10, branch_id: 0, round: 0, kind: "change", label };
}

function figure(lines: Line[], marks: Mark[] = [], more: Partial<Look> = {}) {
  const store = { head: EMPTY.head, branches: [], marks };
  return figureOf(lines, store, { ...look, ...more }, colors, 600);
}

test("NaN is a gap, and a cross where it began", () => {
  const { data } = figure([line([1, Number.NaN, Number.NaN, 4, Number.POSITIVE_INFINITY])]);
  expect(data[0]?.y).toEqual([1, null, null, 4, null]);
  expect(data[1]).toMatchObject({
    x: [1, 4],
    y: [1, 4],
    text: ["nan from step 1", "inf from step 4"],
  });
  expect(JSON.stringify(data)).not.toContain('nan"');
});

test("an abandoned branch is faded and a curve of its own", () => {
  const { data } = figure([line([1, 2], { branch: 1 }), line([1, 2])]);
  expect(data.map((trace) => trace.opacity)).toEqual([0.55, 1]);
  expect(data[0]?.hovertemplate).toContain("branch 1");
});

test("the past of the run's branch has the colour of now, only what was abandoned is faded", () => {
  const branch = (id: number, parent: number | null, step: number) => {
    return { v: 2 as const, id, parent, step, round: 0, reason: "" };
  };
  const store = {
    head: { ...EMPTY.head, branch_id: 2 },
    branches: [branch(0, null, 0), branch(1, 0, 3), branch(2, 0, 2)],
    marks: [],
  };
  const after = (id: number, step: number) => {
    const steps = [step + 1, step + 2];
    return { ...line([8, 9], { branch: id }), steps };
  };
  const lines = [line([0, 1, 2, 3, 4]), after(1, 3), after(2, 2)];
  for (const factor of [0, 0.9]) {
    const { data } = figureOf(lines, store, { ...look, smooth: factor }, colors, 600);
    const drawn = data.filter((_, at) => factor === 0 || at % 2 === 1);
    expect(drawn.map(({ x, line }) => [(line as { color: string }).color, x])).toEqual([
      ["grey", [2, 3, 4]],
      ["grey", [4, 5]],
      ["blue", [0, 1, 2]],
      ["blue", [3, 4]],
    ]);
    expect(drawn.every(({ x, y }) => x?.length === y?.length)).toBe(true);
  }
});

test("smoothing draws both, the raw one faintly", () => {
  const { data } = figure([line([1, 3])], [], { smooth: 0.5 });
  expect(data).toHaveLength(2);
  expect(data[0]?.opacity).toBeLessThan(0.5);
  expect(data[1]?.hovertemplate).toBeUndefined();
  expect(data[1]?.hoverinfo).toBe("skip");
});

test("seconds are an axis of their own", () => {
  const { data } = figure([line([1, 2])], [mark(9, 10)], { axis: "time" });
  expect(data[0]?.x).toEqual([0, 0.1]);
  expect(data[1]).toMatchObject({ x: [1], customdata: [9] });
});

test("labels of marks are text, and none lies on another", () => {
  const evil = '<img src=x onerror="alert(1)">';
  const { layout, data } = figure(
    [line(Array(100).fill(1))],
    [mark(1, 10, evil), mark(2, 11), mark(3, 90)],
  );
  const labels = layout.annotations as { text: string; name: string }[];
  expect(labels.map((each) => each.name)).toEqual(["3", "2"]);
  expect(JSON.stringify([layout, data])).not.toContain("<img");
  expect(data.at(-1)?.text?.[0]).toContain("&lt;img");
  expect(layout.shapes).toHaveLength(3);
});

test.each([
  ["lr 1e-3", "lr 1e-3"],
  ["label_smoothing 0.3", "label_smoothi… 0.3"],
  ["layers.0.attention.scale -1.2346e-5", "layers… -1.2346e-5"],
  ["an_odd_knob 12345678901234567890", "a… 12345678901234567890"],
  ["a guard that says much", "a guard that says…"],
  ["lr, weight_decay, betas[0]", "lr, weight_decay,…"],
])("of %s the name is shortened, never the value", (label, shown) => {
  expect(short(label)).toBe(shown);
});

test("no label reaches over the line of another mark, unless it is the chosen one", () => {
  const marks = [mark(1, 8, "lr 0.001"), mark(2, 15, "label_smoothing 0.3"), mark(3, 24)];
  const named = (selected: number | null) => {
    const { layout } = figure([line(Array(100).fill(1))], marks, { selected });
    return (layout.annotations as { name: string }[]).map((each) => each.name);
  };
  // The second has 50 px on its right and 40 px on its left, and is longer than both.
  expect(named(null)).toEqual(["3", "1"]);
  expect(named(2)).toEqual(["2", "1"]);
});

test("marks of one step are told by the newest of them", () => {
  const { layout } = figure(
    [line(Array(100).fill(1))],
    [mark(1, 50, "lr 1"), mark(2, 50, "eps 2")],
  );
  const labels = layout.annotations as { name: string; xanchor: string }[];
  expect(labels.map((each) => [each.name, each.xanchor])).toEqual([
    ["2", "left"],
    ["1", "right"],
  ]);
});

test("the chosen mark stands out, also when it is old", () => {
  const marks = Array.from({ length: 200 }, (_, i) => mark(i, i));
  const { layout } = figure([line(Array(200).fill(1))], marks, { selected: 0 });
  const shapes = layout.shapes as { x0: number; line: { width: number } }[];
  expect(shapes).toHaveLength(60);
  expect(shapes.filter((each) => each.line.width === 2).map((each) => each.x0)).toEqual([0]);
});

test("lines are named by their round, and by their branch where a round has several", () => {
  const head = { ...EMPTY.head, round: 2, max_rounds: 4 };
  const lines = [
    line([1, 2]),
    line([3, 4], { round: 1 }),
    line([3, 4], { round: 1, branch: 1 }),
    line([5, 6], { round: 2 }),
  ];
  const marks = [{ ...mark(1, 1), round: 1 }];
  const { data } = figureOf(lines, { head, branches: [], marks }, look, colors, 600);
  const names = data.slice(0, 4).map((trace) => String(trace.hovertemplate).split(" · ")[1]);
  expect(names.map((name) => name?.replace("<extra></extra>", ""))).toEqual([
    "round 1",
    "round 2, branch 0",
    "round 2, branch 1",
    undefined,
  ]);
  expect(data[4]?.text).toEqual(["lr 1e-3<br>round 2, step 1"]);
});
