import { expect, test } from "vitest";
import { type Colors, figureOf, type Look } from "../src/figure";
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
  return { branch: 0, round: 0, steps, times: steps.map((step) => step / 10), values, ...part };
}

function mark(seq: number, step: number, label = "lr 1e-3"): Mark {
  return { seq, step, t: step / 10, branch_id: 0, round: 0, kind: "change", label };
}

function figure(lines: Line[], marks: Mark[] = [], more: Partial<Look> = {}) {
  return figureOf(lines, { head: EMPTY.head, marks }, { ...look, ...more }, colors, 600);
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
  const { data } = figureOf(lines, { head, marks }, look, colors, 600);
  const names = data.slice(0, 4).map((trace) => String(trace.hovertemplate).split(" · ")[1]);
  expect(names.map((name) => name?.replace("<extra></extra>", ""))).toEqual([
    "round 1",
    "round 2, branch 0",
    "round 2, branch 1",
    undefined,
  ]);
  expect(data[4]?.text).toEqual(["lr 1e-3<br>round 2, step 1"]);
});
