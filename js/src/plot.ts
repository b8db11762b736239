/** One plot: drawn by Plotly now and then, and in between its lines grow inside of the axes. */

import type { ChartDiv, Plotly } from "./chart";
import { h, setAttribute, setText } from "./dom";
import { type Figure, figureOf, type Look, rateOf, readColors, strokesOf } from "./figure";
import { latestText } from "./numbers";
import type { Line, Series } from "./series";
import type { Store } from "./store";
import { fits, MARGIN, pathOf, type Range } from "./strokes";
import type { Latest } from "./wire";

/** Between two drawings of a plot by Plotly because its curve has grown, as a multiple of one. */
const REST = 800;
const LONGEST_REST_MS = 10_000;
const FIRST_REST_MS = 400;
/** The same where a value lies outside of the axes: a loss that explodes is news. */
const SHORT_REST = 50;
/** A curve that has grown by less than a pixel is drawn after this time. */
const PIXEL_MS = 1_000;

export interface PlotHands {
  zoom(range: [number, number] | null): void;
  select(seq: number | null): void;
  redraw(plot: Plot): void;
}

export class Plot {
  readonly element: HTMLElement;
  /** Finer points of a zoomed stretch; null shows the whole. */
  zoomed: Line[] | null = null;
  colors: ReturnType<typeof readColors> | null = null;
  #div: ChartDiv = h("div", { class: "it2-plot-area" });
  #value = h("span", { class: "it2-mono it2-latest" });
  #wired = false;
  /** Of the whole plot, pixels. Kept: asking the page while it changes has it lay out twice. */
  #size = { width: 0, height: 0 };
  #figure: Figure | null = null;
  /** The paths of each line of the figure. */
  #paths: Element[][] = [];
  #points = 0;
  #drawnX = 0;
  #drawnAt = 0;
  #restMs = 0;
  #newsMs = 0;
  #reactedAt = 0;
  #axis: Range | null = null;
  /** Until when that axis has room: another drawing with the same one gives the lines no more. */
  #roomUntil = 0;
  #outside = false;
  #dueAt = Number.POSITIVE_INFINITY;

  constructor(
    private readonly name: string,
    private readonly hands: PlotHands,
  ) {
    const head = h(
      "figcaption",
      { class: "it2-plot-head" },
      h("span", { text: name }),
      this.#value,
    );
    this.#div.setAttribute("role", "img");
    this.element = h("figure", { class: "it2-plot" }, head, this.#div);
    this.element.dataset.metric = name;
  }

  latest(latest: Latest | undefined): void {
    setText(this.#value, latestText(latest));
    setAttribute(this.#value, "data-odd", latest?.nonfinite ?? null);
    const step = latest === undefined ? "" : ` at step ${latest.step}`;
    setAttribute(this.#div, "aria-label", `Curve of ${this.name}, ${latestText(latest)}${step}`);
  }

  /** Whether Plotly has drawn it yet. */
  get drawn(): boolean {
    return this.#wired;
  }

  /** When it has to be drawn although nothing new may come: something is cut off or left out. */
  get dueAt(): number {
    return this.#dueAt;
  }

  /** Whether it wants Plotly: growing is not enough. */
  isDue(now: number): boolean {
    return this.#figure === null || this.#dueAt <= now;
  }

  /** Have Plotly draw it all the next time. */
  invalidate(): void {
    this.#figure = null;
  }

  /** The time that its drawings by Plotly keep between each other, milliseconds. */
  get restMs(): number {
    return this.#restMs;
  }

  lines(series: Series): readonly Line[] {
    return this.zoomed ?? series.lines(this.name);
  }

  /** `axis` gives the x axis, and is asked only where there is something to draw. */
  draw(plotly: Plotly, series: Series, store: Store, look: Look, axis: () => Range): void {
    if (this.grow(series, store, look)) return;
    this.colors ??= readColors(this.#div);
    const lines = this.lines(series);
    if (this.#size.width === 0) this.#measure();
    const range = axis();
    this.#figure = figureOf(lines, store, look, this.colors, this.#size.width, range);
    const { data, layout, config } = this.#figure;
    this.#points = pointsOf(lines);
    const began = performance.now();
    plotly.react(this.#div, data, layout, config);
    const now = performance.now();
    if (range !== this.#axis) {
      // What the axis was made for, not what this drawing took: the first ones know little of it.
      // A young run has less room: twice its length is enough, and doubling it costs little.
      const rate = rateOf(store, look);
      const roomMs = rate > 0 ? ((range[1] - endOf(lines, look)) / rate) * 1_000 : Infinity;
      this.#roomUntil = now + Math.min(Math.max(FIRST_REST_MS, this.#restMs), roomMs);
      this.#axis = range;
    }
    // The first drawing is slow, and of a run that has just begun: it soon wants another.
    const longest = this.#wired ? LONGEST_REST_MS : FIRST_REST_MS;
    this.#restMs = Math.min(longest, REST * (now - began));
    this.#newsMs = Math.min(longest, SHORT_REST * (now - began));
    this.#reactedAt = now;
    this.#findPaths(this.#figure.strokes);
    this.#drawnX = endOf(lines, look);
    this.#drawnAt = now;
    this.#outside = false;
    this.#dueAt = Number.POSITIVE_INFINITY;
    if (!this.#wired) this.#wire();
  }

  /** What the lines are made of. */
  #findPaths(strokes: number): void {
    // The marks have a layer of their own, over the second y axis.
    const layers = [...this.#div.querySelectorAll(".scatterlayer")];
    const groups = layers.find((each) => each.closest(".xy2") === null)?.children ?? [];
    this.#paths = Array.from({ length: strokes }, (_, at) => [
      ...(groups[at]?.querySelectorAll("path.js-line") ?? []),
    ]);
  }

  #measure(): void {
    this.#size = { width: this.#div.clientWidth, height: this.#div.clientHeight };
  }

  /** Let the lines grow inside of the axes that are there; false where that can't be. */
  grow(series: Series, store: Store, look: Look): boolean {
    const figure = this.#figure;
    // What the pointer reads is Plotly's own copy of the numbers: under it, all is drawn.
    if (figure === null || this.colors === null || this.#div.matches(":hover")) return false;
    const lines = this.lines(series);
    const points = pointsOf(lines);
    const width = this.#size.width - MARGIN.l - MARGIN.r;
    const height = this.#size.height - MARGIN.t - MARGIN.b;
    const [low, high] = figure.frame.x;
    const end = endOf(lines, look);
    const grownPx = ((end - this.#drawnX) / (high - low)) * width;
    const now = performance.now();
    if (points >= this.#points && grownPx < 1 && now - this.#drawnAt < PIXEL_MS) {
      // The next batch brings it; this is for the one that never comes.
      if (points > this.#points) this.#dueAt = Math.min(this.#dueAt, this.#drawnAt + 2 * PIXEL_MS);
      return true;
    }
    const traces = strokesOf(lines, store, look, this.colors);
    const added = points - this.#points;
    // Fewer than before: the line was thinned, or replaced by a snapshot.
    const fresh = added >= 0 ? added : points;
    const from = fresh + 2;
    if (traces.length !== figure.strokes) return false;
    // A curve that leaves its axes is cut off there for a moment, rather than drawn too often.
    // The cross of what is no number is Plotly's to draw.
    if (!fits(traces, figure.frame, from) || lines.some((line) => breaksOff(line, fresh))) {
      this.#outside = true;
    }
    let dueAt = Number.POSITIVE_INFINITY;
    if (end > high) dueAt = this.#roomUntil;
    if (this.#outside) dueAt = Math.min(dueAt, this.#reactedAt + this.#newsMs);
    this.#dueAt = dueAt;
    if (now >= dueAt) return false;
    if (this.#paths.some((each) => each[0]?.isConnected !== true)) return false;
    traces.forEach((trace, at) => {
      const [path, ...others] = this.#paths[at] as [Element, ...Element[]];
      path.setAttribute("d", pathOf(trace, figure.frame, width, height));
      // Where a line has holes Plotly has a path for each stretch; ours holds them all.
      for (const other of others) other.setAttribute("d", "M0,0");
    });
    this.#points = points;
    this.#drawnX = end;
    this.#drawnAt = now;
    return true;
  }

  #wire(): void {
    this.#wired = true;
    this.#div.on?.("plotly_relayout", (event) => {
      const [lo, hi] = [event["xaxis.range[0]"], event["xaxis.range[1]"]];
      if (typeof lo === "number" && typeof hi === "number") this.hands.zoom([lo, hi]);
      else if (event["xaxis.autorange"] === true) this.hands.zoom(null);
    });
    this.#div.on?.("plotly_doubleclick", () => this.hands.zoom(null));
    this.#div.on?.("plotly_click", (event) => {
      const codes = event.points?.map((point) => point.customdata) ?? [];
      const seq = codes.find((each) => typeof each === "number");
      if (typeof seq === "number") this.hands.select(seq);
    });
    this.#div.on?.("plotly_clickannotation", (event) => {
      const seq = Number(event.annotation?.name);
      if (Number.isFinite(seq)) this.hands.select(seq);
    });
    this.#div.addEventListener("pointerenter", () => this.hands.redraw(this));
  }

  resize(): void {
    const before = this.#size;
    this.#measure();
    const { width, height } = this.#size;
    if (!this.#wired || width === 0) return;
    if (width !== before.width || height !== before.height) this.hands.redraw(this);
  }

  close(plotly: Plotly | null): void {
    if (this.#wired) plotly?.purge(this.#div);
    this.element.remove();
  }
}

function pointsOf(lines: readonly Line[]): number {
  return lines.reduce((sum, line) => sum + line.steps.length, 0);
}

/** Whether one of the last points is the first of a stretch that is no number. */
function breaksOff({ values }: Line, from: number): boolean {
  for (let i = Math.max(0, values.length - from); i < values.length; i++) {
    if (!Number.isFinite(values[i]) && (i === 0 || Number.isFinite(values[i - 1]))) return true;
  }
  return false;
}

/** Where the newest line ends, on the x axis. */
function endOf(lines: readonly Line[], look: Look): number {
  const last = lines.at(-1);
  return (look.axis === "step" ? last?.steps : last?.times)?.at(-1) ?? 0;
}
