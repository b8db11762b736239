// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Plotly } from "../src/chart";
import { Curves, type Hands } from "../src/curves";
import { Series } from "../src/series";
import { EMPTY, type Store } from "../src/store";

/** Draws what Plotly draws as far as curves look at it, and notes how often and up to where. */
class Chart {
  drawn: number[] = [];
  /** The x axis of each plot. */
  axes = new Map<HTMLElement, number[]>();
  /** Whether its y axis is logarithmic. */
  log = new Map<HTMLElement, boolean>();
  zoom: (event: object) => void = () => undefined;
  costMs = 10;

  react(
    div: HTMLElement,
    data: { x: number[] }[],
    layout: { xaxis: { range: number[] }; yaxis: { type: string } },
  ): void {
    const ends = data.flatMap((trace) => trace.x.at(-1) ?? []);
    this.drawn.push(Math.min(Math.max(...ends), layout.xaxis.range[1] as number));
    this.axes.set(div, layout.xaxis.range);
    this.log.set(div, layout.yaxis.type === "log");
    const paths = data.map(() => '<g class="trace"><path class="js-line" d="M0,0"/></g>');
    div.innerHTML = `<svg><g class="scatterlayer">${paths.join("")}</g></svg>`;
    Object.assign(div, {
      on: (name: string, call: (event: object) => void) => {
        if (name === "plotly_relayout") this.zoom = call;
      },
    });
    // It takes its time: the longer, the rarer it is asked for.
    vi.setSystemTime(Date.now() + this.costMs);
    clock += this.costMs;
  }

  purge(): void {
    // Nothing is kept.
  }
}

/** Tells of sizes as a browser does: of the boxes that are observed, and of no other. */
class Sizes {
  static all: Sizes[] = [];
  #observed = new Set<Element>();

  constructor(private readonly call: () => void) {
    Sizes.all.push(this);
  }

  static changed(element: Element | null): void {
    for (const each of Sizes.all) {
      if (element !== null && each.#observed.has(element)) each.call();
    }
  }

  observe(element: Element): void {
    this.#observed.add(element);
  }

  unobserve(element: Element): void {
    this.#observed.delete(element);
  }

  disconnect(): void {
    this.#observed.clear();
  }
}

let clock = 0;
let abort: AbortController;

beforeEach(() => {
  const nothing = class {
    observe(): void {
      // Nothing is out of sight here.
    }
    disconnect(): void {
      // Nor was it.
    }
  };
  Sizes.all = [];
  vi.stubGlobal("ResizeObserver", Sizes);
  vi.stubGlobal("IntersectionObserver", nothing);
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
  vi.stubGlobal("requestAnimationFrame", (call: () => void) => setTimeout(call, 16));
  vi.stubGlobal("cancelAnimationFrame", (id: number) => clearTimeout(id));
  clock = 0;
  abort = new AbortController();
  vi.spyOn(performance, "now").mockImplementation(() => clock);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(500);
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(156);
});

afterEach(() => {
  abort.abort();
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

/** Let time pass, in small steps, so that timers see the clock of their moment. */
async function pass(ms: number): Promise<void> {
  const until = clock + ms;
  while (clock < until) {
    clock += 10;
    await vi.advanceTimersByTimeAsync(10);
  }
}

interface Watched {
  curves: Curves;
  chart: Chart;
  series: Series;
  asked: { lo: number; hi: number; names: string[] }[];
  tell(step: number, value?: number, status?: Store["head"]["status"]): void;
  /** Show these metrics from the next batch on. */
  show(names: string[]): void;
}

async function watched(watch = ["loss"]): Promise<Watched> {
  const chart = new Chart();
  const series = new Series();
  const asked: Watched["asked"] = [];
  const hands: Hands = {
    watch: () => undefined,
    window: (ask) => asked.push(ask),
    select: () => undefined,
    chart: () => Promise.resolve(chart as unknown as Plotly),
    late: "",
  };
  const curves = new Curves(series, hands, abort.signal);
  document.body.append(curves.element);
  let last = 0;
  const show = (names: string[]) => {
    watch = names;
  };
  const tell = (step: number, value = 0.5, status: Store["head"]["status"] = "running") => {
    const steps = Array.from({ length: step - last }, (_, i) => last + i + 1);
    const flat = steps.map((each) => each % 2);
    const values = flat.map((each, i) => (i === steps.length - 1 ? value : each));
    last = step;
    const columns = [...steps, ...steps.map((each) => each / 100)];
    const curve = { branch_id: 0, round: 0, at: 0, thinned: false, count: steps.length };
    // The others are calm.
    for (const name of watch) {
      const data = new Float64Array([...columns, ...(name === watch[0] ? values : flat)]);
      series.append({ ...curve, name }, data);
    }
    const head = { ...EMPTY.head, status, step, steps_per_s: 100 };
    curves.update({ ...EMPTY, synced: true, watch, head }, new Set(watch));
  };
  await pass(50);
  return { curves, chart, series, asked, tell, show };
}

test("a curve that left its axes is drawn whole although nothing new comes", async () => {
  const { chart, tell } = await watched();
  tell(100);
  await pass(500);
  // A burst that no axis has room for, and then a long step.
  tell(2_000);
  await pass(10_000);
  expect(chart.drawn.at(-1)).toBe(2_000);
});

test("a value that left its axes is seen although it was the last one for long", async () => {
  const { chart, tell } = await watched();
  tell(100);
  await pass(500);
  const before = chart.drawn.length;
  tell(103, 1e6);
  await pass(5_000);
  expect(chart.drawn.length).toBeGreaterThan(before);
});

test("a value that is no number is marked soon, also where the axis has room for long", async () => {
  const { chart, tell } = await watched();
  tell(1_000);
  await pass(5_000);
  const before = chart.drawn.length;
  tell(1_001, Number.NaN);
  await pass(500);
  tell(1_002);
  await pass(1_000);
  expect(chart.drawn.length).toBeGreaterThan(before);
  // One that goes on being none has its cross.
  tell(1_003, Number.NaN);
  await pass(2_000);
  const marked = chart.drawn.length;
  for (let step = 1_004; step < 1_010; step++) {
    tell(step, Number.NaN);
    await pass(500);
  }
  expect(chart.drawn.length).toBe(marked);
});

test("while a curve grows inside of its axes Plotly has nothing to do", async () => {
  const { chart, tell } = await watched();
  tell(1_000);
  await pass(5_000);
  const before = chart.drawn.length;
  for (let step = 1_001; step <= 1_020; step++) {
    tell(step);
    await pass(200);
  }
  expect(chart.drawn.length).toBe(before);
});

test("plots that stand together have one x axis, whenever one of them is drawn", async () => {
  const { chart, tell } = await watched(["loss", "acc", "lr"]);
  const axes = () => new Set([...chart.axes.values()].map((range) => range.join()));
  tell(10);
  await pass(1_000);
  expect(chart.axes.size).toBe(3);
  let apart = 0;
  for (let step = 30; step <= 6_000; step += 20) {
    tell(step, step % 700 === 10 ? step : 0.5);
    await pass(300);
    if (axes().size > 1) apart += 1;
  }
  expect(apart).toBe(0);
  // An axis of its own for each of them took 46.
  expect(chart.drawn.length).toBeLessThanOrEqual(46);
});

test("lines that only grow do so in the frame of a batch", async () => {
  const { curves, tell } = await watched();
  tell(1_000);
  await pass(5_000);
  const frames = vi.spyOn(globalThis, "requestAnimationFrame");
  const path = () => curves.element.querySelector("path.js-line")?.getAttribute("d");
  const shown = new Set([path()]);
  for (let batch = 1; batch <= 20; batch++) {
    tell(1_000 + batch);
    shown.add(path());
    await pass(200);
  }
  expect(frames).not.toHaveBeenCalled();
  expect(shown.size).toBeGreaterThan(3);
});

test("a line that grew grows once more after the last batch", async () => {
  const { curves, tell } = await watched();
  tell(1_000);
  await pass(5_000);
  const path = () => curves.element.querySelector("path.js-line")?.getAttribute("d");
  tell(1_010);
  await pass(200);
  const before = path();
  tell(1_030);
  await pass(1_000);
  expect(path()).not.toBe(before);
});

test("a zoomed stretch is asked for until it is whole", async () => {
  const { chart, asked, tell } = await watched();
  tell(100);
  await pass(500);
  chart.zoom({ "xaxis.range[0]": 50, "xaxis.range[1]": 150 });
  expect(asked).toHaveLength(1);
  // The run passes the edge of the stretch at once.
  tell(400);
  await pass(2_500);
  tell(401);
  expect(asked).toHaveLength(2);
  await pass(2_500);
  tell(500);
  expect(asked).toHaveLength(2);
});

test("a zoomed stretch is asked for a last time when the run pauses inside of it", async () => {
  const { chart, asked, tell } = await watched();
  tell(100);
  await pass(500);
  chart.zoom({ "xaxis.range[0]": 50, "xaxis.range[1]": 900 });
  await pass(400);
  tell(200, 0.5, "paused");
  expect(asked).toHaveLength(2);
});

test("a plot whose room changes although that of all plots does not is measured again", async () => {
  const { curves, tell } = await watched(["loss", "acc"]);
  tell(1_000);
  await pass(3_000);
  // As when one more metric is shown: two columns where there was one.
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(250);
  const boxes = curves.element.querySelectorAll(".it2-plot, .it2-plot-area");
  for (const box of boxes) Sizes.changed(box);
  await pass(1_000);
  tell(1_010);
  await pass(3_000);
  const path = curves.element.querySelector("path.js-line")?.getAttribute("d") ?? "";
  const x = [...path.matchAll(/[ML](\d+),/g)].map((found) => Number(found[1]));
  expect(x.length).toBeGreaterThan(10);
  expect(Math.max(...x)).toBeLessThan(250);
});

test.each(["as wide as before", "a little narrower each second"])(
  "a run that has just begun stays inside of its axis, in a window %s",
  async (window) => {
    const { curves, chart, tell } = await watched();
    let cut = 0;
    for (let batch = 1; batch <= 120; batch++) {
      tell(batch * 25);
      await pass(250);
      if (batch % 4 === 0 && window !== "as wide as before") {
        vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(500 - batch);
        // Such a drawing makes no axis longer.
        Sizes.changed(curves.element.querySelector(".it2-plot"));
      }
      const area = curves.element.querySelector(".it2-plot-area") as HTMLElement;
      if (batch * 25 > (chart.axes.get(area)?.[1] as number)) cut += 1;
    }
    // Half a minute, of which a quarter would be cut off.
    expect(cut).toBeLessThan(10);
  },
);

const MANY = Array.from({ length: 12 }, (_, i) => `m${i}`);

test("what a person asked for is drawn at once, however many plots there are", async () => {
  const { curves, chart, tell } = await watched(MANY);
  chart.costMs = 100;
  tell(1_000);
  await pass(30_000);
  const log = [...curves.element.querySelectorAll("button")].find(
    (each) => each.textContent === "log y",
  );
  log?.click();
  await pass(2_000);
  expect([...chart.log.values()]).toEqual(MANY.map(() => true));
});

test("where a run ended is seen at once, however many plots there are", async () => {
  const { chart, tell } = await watched(MANY);
  chart.costMs = 100;
  tell(1_000);
  await pass(30_000);
  tell(3_000, 0.5, "finished");
  await pass(2_000);
  expect([...chart.axes.values()].map((range) => range[1])).toEqual(MANY.map(() => 3_000));
});

test("a metric that is shown while a zoom holds is asked for, and older answers are dropped", async () => {
  const { curves, chart, asked, tell, show } = await watched();
  tell(100);
  await pass(500);
  chart.zoom({ "xaxis.range[0]": 50, "xaxis.range[1]": 90 });
  show(["loss", "acc"]);
  tell(101);
  expect(asked.map((each) => each.names)).toEqual([["loss"], ["loss", "acc"]]);
  // It knows of no metric but the first.
  const curve = { name: "loss", branch_id: 0, round: 0, at: 0, count: 1, thinned: false };
  curves.window(1, [curve], new Float64Array([60, 0.6, 1]));
  await pass(1_000);
  const area = curves.element.querySelector('[data-metric="acc"] .it2-plot-area');
  expect(area?.querySelector("path.js-line")).not.toBeNull();
});
