import { describe, expect, test } from "vitest";
import { BUCKETS, CAP, LINES, type Line, lineOf, Series, smooth } from "../src/series";
import type { Curve } from "../src/wire";

function message(
  first: number,
  values: number[],
  part: Partial<Curve> = {},
): [Curve, Float64Array] {
  const count = values.length;
  const steps = values.map((_, i) => first + i);
  const curve = { name: "loss", branch_id: 0, round: 0, at: 0, count, thinned: false, ...part };
  return [curve, Float64Array.from([...steps, ...steps.map((step) => step / 10), ...values])];
}

describe("Series", () => {
  test("of many short rounds a page keeps as many lines as a snapshot brings", () => {
    const series = new Series();
    for (let round = 0; round < 100; round++) series.append(...message(0, [3, 2, 1], { round }));
    expect(series.lines("loss").map((line) => line.round)).toEqual(
      Array.from({ length: LINES }, (_, i) => 100 - LINES + i),
    );
  });

  test("a spike of one step is never lost, however long the run", () => {
    const series = new Series();
    const spikes = [1_234, 50_001, 99_998];
    for (let first = 0; first < 100_000; first += 100) {
      const values = Array.from({ length: 100 }, (_, i) =>
        spikes.includes(first + i) ? 1_000 : Math.sin(first + i),
      );
      series.append(...message(first, values));
    }
    const [line] = series.lines("loss");
    expect(line?.steps.length).toBeLessThanOrEqual(CAP);
    expect(line?.steps.length).toBeGreaterThan(BUCKETS / 2);
    expect(line?.values.filter((value) => value === 1_000)).toHaveLength(3);
    expect(line?.steps.at(-1)).toBe(99_999);
    expect(line?.steps[0]).toBe(0);
    // The old half has its share: it does not grow thinner with each round.
    const old = line?.steps.filter((step) => step < 50_000).length ?? 0;
    expect(old / (line?.steps.length ?? 1)).toBeGreaterThan(0.2);
  });

  test("holes survive thinning", () => {
    const series = new Series();
    series.append(
      ...message(
        0,
        Array.from({ length: 9_000 }, (_, i) => (i === 777 ? Number.NaN : 1)),
      ),
    );
    const [line] = series.lines("loss");
    expect(line?.values.filter(Number.isNaN)).toHaveLength(1);
  });

  test("points that come twice are kept once", () => {
    const series = new Series();
    series.append(...message(0, [1, 2, 3]));
    series.append(...message(1, [2, 3, 4]));
    expect(series.lines("loss")[0]).toMatchObject({ steps: [0, 1, 2, 3], values: [1, 2, 3, 4] });
  });

  test("branches and rounds are lines of their own", () => {
    const series = new Series();
    series.append(...message(0, [1, 2]));
    series.append(...message(1, [5], { branch_id: 1 }));
    series.append(...message(0, [6], { round: 1 }));
    expect(series.lines("loss").map((line) => [line.round, line.branch])).toEqual([
      [0, 0],
      [0, 1],
      [1, 0],
    ]);
    series.keep([]);
    expect(series.lines("loss")).toEqual([]);
  });

  test("a curve starts where it stands in the buffer", () => {
    const data = Float64Array.from([9, 9, 9, 1, 0.1, 7]);
    const line = lineOf(
      { name: "x", branch_id: 0, round: 0, at: 3, count: 1, thinned: false },
      data,
    );
    expect(line).toMatchObject({ steps: [1], times: [0.1], values: [7] });
  });
});

describe("smooth", () => {
  const line = (values: number[]): Line => lineOf(...message(0, values));

  test("is bias-corrected, skips holes and counts steps that were left out", () => {
    expect(smooth(line([1, 1, 1]), 0.9)).toEqual([1, 1, 1]);
    const [a, hole, b] = smooth(line([1, Number.NaN, 3]), 0.5);
    expect([a, hole]).toEqual([1, null]);
    // Weights 0.5 * 0.25 for the first, 0.75 for the last.
    expect(b).toBeCloseTo((0.125 * 1 + 0.75 * 3) / 0.875, 12);
  });

  test("a line that grows, is thinned, or gets another factor is averaged as a new one is", () => {
    const series = new Series();
    const random = (first: number) =>
      Array.from({ length: 700 }, (_, i) => (i === 99 ? Number.NaN : Math.sin(first + i ** 2)));
    for (let first = 0; first < 14_000; first += 700) {
      series.append(...message(first, random(first)));
      const grown = series.lines("loss")[0] as Line;
      for (const factor of first % 2_800 === 0 ? [0.9, 0.6] : [0.9]) {
        expect(smooth(grown, factor)).toEqual(smooth({ ...grown }, factor));
      }
    }
    expect(series.lines("loss")[0]?.thinned).toBeGreaterThan(0);
  });
});
