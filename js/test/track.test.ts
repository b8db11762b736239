import { expect, test } from "vitest";
import { trackOf } from "../src/track";

type Bounds = Parameters<typeof trackOf>[0];

function track(bounds: Partial<Bounds>) {
  const found = trackOf({ dtype: "float", min: 0, max: 1, step: null, scale: "linear", ...bounds });
  if (found === null) throw new Error("no track");
  return found;
}

const KINDS: Partial<Bounds>[] = [
  { min: 1e-7, max: 1e-1, scale: "log" },
  { min: 3.3e-7, max: 0.77, scale: "log" },
  { min: 0, max: 1e-2, scale: "log" },
  { min: 0, max: 1 },
  { min: -0.3, max: 0.7, step: 0.05 },
  { min: 0.1, max: 1, step: 0.4 },
  { dtype: "int", min: 1, max: 64 },
  { dtype: "int", min: 1, max: 1_000_000, scale: "log" },
  { dtype: "int", min: 0, max: 1_000_000 },
];

test.each(KINDS)("%o reaches both ends exactly and rises", (bounds) => {
  const on = track(bounds);
  expect(on.valueAt(0)).toBe(bounds.min);
  expect(on.valueAt(on.ticks)).toBe(bounds.max);
  expect(on.tickOf(bounds.min ?? 0)).toBe(0);
  expect(on.tickOf(bounds.max ?? 0)).toBe(on.ticks);
  for (let tick = 1; tick <= on.ticks; tick++) {
    expect(on.valueAt(tick)).toBeGreaterThanOrEqual(on.valueAt(tick - 1));
    if (bounds.dtype === "int") expect(Number.isInteger(on.valueAt(tick))).toBe(true);
  }
});

test("a log track spreads decades evenly and asks for tidy values", () => {
  const on = track({ min: 1e-6, max: 1e-2, scale: "log" });
  expect([50, 100, 150].map(on.valueAt)).toEqual([1e-5, 1e-4, 1e-3]);
  expect(on.tickOf(1e-4)).toBe(100);
  expect(String(on.valueAt(77)).length).toBeLessThan(10);
});

test("a grid is kept, without the noise of adding up", () => {
  const on = track({ min: 0, max: 1, step: 0.1 });
  expect([1, 3, 7].map(on.valueAt)).toEqual([0.1, 0.3, 0.7]);
});

test("a value beside the grid has a place, and stays what it is", () => {
  const on = track({ min: 1e-7, max: 1e-1, scale: "log" });
  const tick = on.tickOf(3.141592653589793e-5);
  expect(Math.abs(on.valueAt(tick) / 3.14e-5 - 1)).toBeLessThan(0.05);
});

test("without bounds there is nothing to slide along", () => {
  const bounds: Bounds = { dtype: "float", min: 0, max: null, step: null, scale: "linear" };
  expect(trackOf(bounds)).toBeNull();
  expect(trackOf({ ...bounds, max: 0 })).toBeNull();
  expect(trackOf({ ...bounds, dtype: "str", max: 1 })).toBeNull();
});
