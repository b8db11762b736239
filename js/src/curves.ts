/** The curves: a plot for each watched metric, with a line where a change came into force. */

import type { ChartDiv, Plotly } from "./chart";
import { h, setAttribute, setText, show } from "./dom";
import { type Figure, figureOf, type Look, readColors, strokesOf } from "./figure";
import { latestText } from "./numbers";
import { type Line, lineOf, type Series } from "./series";
import type { Store } from "./store";
import { fits, MARGIN, pathOf } from "./strokes";
import type { Curve, Latest, WindowAsk } from "./wire";

/** Share of the page's main thread that drawing may take. */
const SHARE = 0.05;
/** What may be spent at once after a rest. */
const SAVED_MS = 150;
const MOST_DEBT_MS = 100;
/** Between two drawings of a plot by Plotly because its curve has grown, as a multiple of one. */
const REST = 50;
const LONGEST_REST_MS = 3_000;
/** Between two rounds. */
const ROUND_MS = 180;
const POINTS = 2_000;
const SMOOTHING = [0, 0.6, 0.9, 0.97, 0.99];

export interface Hands {
  watch(names: string[]): void;
  window(ask: Omit<WindowAsk, "v" | "kind" | "client" | "ask">): number;
  select(seq: number | null): void;
  chart(): Promise<Plotly>;
}

export class Curves {
  readonly element = h("section", { class: "it2-curves", "aria-label": "Curves" });
  #chips = h("div", { class: "it2-chips", role: "group", "aria-label": "Metrics shown" });
  #chipsKey = "";
  #log = chip("log y", "logarithmic y axis");
  #axis = chip("x: step", "step or seconds on the x axis");
  #reset = chip("reset zoom", "show the whole run (double click on a plot)");
  #smooth = h("select", { class: "it2-chip", "aria-label": "Smoothing" });
  #plots = h("div", { class: "it2-plots" });
  #note = h("p", { class: "it2-none", role: "status" });
  #byName = new Map<string, Plot>();
  #look: Look = { log: false, axis: "step", smooth: 0.9, zoom: null, selected: null };
  #plotly: Plotly | null = null;
  #store: Store | null = null;
  #asked = -1;
  #askedAt = 0;
  #visible = true;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #frame = 0;
  #purseMs = SAVED_MS;
  #paidAt = performance.now();
  #dirty = new Set<Plot>();
  #lastRound = 0;

  constructor(
    private readonly series: Series,
    private readonly hands: Hands,
    private readonly signal: AbortSignal,
  ) {
    for (const each of SMOOTHING) {
      this.#smooth.append(
        h("option", { value: each, text: each === 0 ? "no smoothing" : `smooth ${each}` }),
      );
    }
    this.#smooth.value = String(this.#look.smooth);
    show(this.#reset, false);
    const look = h("div", { class: "it2-look", role: "group", "aria-label": "Look of the curves" });
    look.append(this.#reset, this.#log, this.#smooth, this.#axis);
    const bar = h("div", { class: "it2-bar" }, this.#chips, look);
    this.element.append(bar, this.#note, this.#plots);
    this.#log.addEventListener("click", () => this.#change({ log: !this.#look.log }), { signal });
    this.#axis.addEventListener("click", () => this.#flipAxis(), { signal });
    this.#reset.addEventListener("click", () => this.#zoom(null), { signal });
    this.#smooth.addEventListener(
      "change",
      () => this.#change({ smooth: Number(this.#smooth.value) }),
      { signal },
    );
    this.#loadChart();
    this.#watchSurroundings();
    signal.addEventListener("abort", () => this.#close(), { once: true });
  }

  update(store: Store, changed: ReadonlySet<string>): void {
    const before = this.#store;
    this.#store = store;
    this.#updateChips(store);
    const fresh = before === null || before.watch !== store.watch;
    if (fresh) this.#arrange(store.watch);
    for (const [name, plot] of this.#byName) plot.latest(store.head.metrics[name]);
    const whole =
      fresh ||
      before?.marks !== store.marks ||
      before?.branches !== store.branches ||
      before?.head.status !== store.head.status;
    for (const [name, plot] of this.#byName) {
      if (whole) plot.invalidate();
      if (whole || changed.has(name)) this.#dirty.add(plot);
    }
    this.#refine(false);
    this.#schedule();
  }

  /** Take the answer to a zoom; an answer to an older zoom is dropped. */
  window(ask: number, curves: readonly Curve[], data: Float64Array): void {
    if (ask !== this.#asked || this.#look.zoom === null) return;
    const lines = new Map<string, Line[]>();
    for (const curve of curves) {
      lines.set(curve.name, [...(lines.get(curve.name) ?? []), lineOf(curve, data)]);
    }
    for (const [name, plot] of this.#byName) {
      plot.zoomed = lines.get(name) ?? [];
      plot.invalidate();
      this.#dirty.add(plot);
    }
    this.#schedule();
  }

  select(seq: number | null): void {
    this.#change({ selected: seq });
  }

  // -------------------------------------------------------------------------- parts of it

  #updateChips(store: Store): void {
    const names = Object.keys(store.head.metrics);
    for (const name of store.watch) if (!names.includes(name)) names.push(name);
    const key = JSON.stringify([names, store.watch]);
    if (key === this.#chipsKey) return;
    this.#chipsKey = key;
    const focused = this.#chips.contains(document.activeElement)
      ? (document.activeElement as HTMLElement).dataset.name
      : undefined;
    this.#chips.replaceChildren(
      ...names.map((name) => {
        const one = chip(name, `show or hide ${name}`);
        one.dataset.name = name;
        setAttribute(one, "aria-pressed", String(store.watch.includes(name)));
        one.addEventListener("click", () => this.#toggle(name));
        return one;
      }),
    );
    for (const one of this.#chips.children) {
      if (focused !== undefined && (one as HTMLElement).dataset.name === focused) {
        (one as HTMLElement).focus();
      }
    }
  }

  #toggle(name: string): void {
    const shown = this.#store?.watch ?? [];
    const next = shown.includes(name) ? shown.filter((each) => each !== name) : [...shown, name];
    this.hands.watch(next.slice(-12));
  }

  #arrange(names: readonly string[]): void {
    for (const [name, plot] of this.#byName) {
      if (names.includes(name)) continue;
      plot.close(this.#plotly);
      this.#dirty.delete(plot);
      this.#byName.delete(name);
    }
    for (const name of names) {
      if (this.#byName.has(name)) continue;
      const plot = new Plot(name, {
        zoom: (range) => this.#zoom(range),
        select: (seq) => this.hands.select(seq),
        redraw: (one) => {
          one.invalidate();
          this.#dirty.add(one);
          this.#schedule();
        },
      });
      this.#byName.set(name, plot);
    }
    const wanted = names.flatMap((name) => this.#byName.get(name)?.element ?? []);
    if (wanted.some((each, at) => this.#plots.children[at] !== each)) {
      this.#plots.replaceChildren(...wanted);
    }
    this.#plots.dataset.count = String(names.length);
    this.#updateNote();
  }

  #updateNote(): void {
    const watching = this.#byName.size > 0;
    const text = watching
      ? this.#plotly === null
        ? this.#noteText
        : ""
      : "No metric is shown: they appear with the first step; choose them above.";
    setText(this.#note, text);
    show(this.#note, text !== "");
  }

  #noteText = "";

  #loadChart(): void {
    const late = setTimeout(() => {
      this.#noteText = "Waiting for the kernel: the chart library comes when the cell ends.";
      this.#updateNote();
    }, 2_000);
    this.hands.chart().then(
      (plotly) => {
        clearTimeout(late);
        if (this.signal.aborted) return;
        this.#plotly = plotly;
        this.#updateNote();
        for (const plot of this.#byName.values()) this.#dirty.add(plot);
        this.#schedule();
      },
      (error: unknown) => {
        clearTimeout(late);
        this.#noteText = `The chart library did not load: ${String(error)}`;
        this.#updateNote();
      },
    );
  }

  #watchSurroundings(): void {
    const size = new ResizeObserver(() => {
      for (const plot of this.#byName.values()) plot.resize();
    });
    size.observe(this.#plots);
    const seen = new IntersectionObserver((entries) => {
      this.#visible = entries.at(-1)?.isIntersecting ?? true;
      this.#schedule();
    });
    seen.observe(this.element);
    // JupyterLab changes its theme under us.
    const theme = new MutationObserver(() => this.#redraw());
    for (const node of [document.documentElement, document.body]) {
      theme.observe(node, {
        attributes: true,
        attributeFilter: ["data-jp-theme-name", "data-theme", "class"],
      });
    }
    this.signal.addEventListener("abort", () => {
      size.disconnect();
      seen.disconnect();
      theme.disconnect();
    });
  }

  #change(part: Partial<Look>): void {
    this.#look = { ...this.#look, ...part };
    setAttribute(this.#log, "aria-pressed", String(this.#look.log));
    setText(this.#axis, `x: ${this.#look.axis}`);
    show(this.#reset, this.#look.zoom !== null);
    this.#redraw();
  }

  #redraw(): void {
    for (const plot of this.#byName.values()) {
      plot.colors = null;
      plot.invalidate();
      this.#dirty.add(plot);
    }
    this.#lastRound = 0;
    // What a person asked for is drawn at once.
    this.#purseMs = SAVED_MS;
    this.#schedule();
  }

  #flipAxis(): void {
    const axis = this.#look.axis === "step" ? "time" : "step";
    this.#asked = -1;
    for (const plot of this.#byName.values()) plot.zoomed = null;
    this.#change({ axis, zoom: null });
  }

  #zoom(range: [number, number] | null): void {
    for (const plot of this.#byName.values()) if (range === null) plot.zoomed = null;
    this.#asked = -1;
    this.#change({ zoom: range });
    this.#refine(true);
  }

  /** Ask for the points of the zoomed stretch; again while the run still writes into it. */
  #refine(now: boolean): void {
    const { zoom, axis } = this.#look;
    if (zoom === null || this.#store === null) return;
    const { head, watch } = this.#store;
    const end = axis === "step" ? head.step : head.elapsed_s;
    const growing = zoom[1] >= end && head.status === "running";
    const again = growing && performance.now() - this.#askedAt > 2_000;
    if (!now && !again) return;
    this.#askedAt = performance.now();
    this.#asked = this.hands.window({
      names: watch.slice(0, 12),
      axis,
      lo: zoom[0],
      hi: zoom[1],
      points: POINTS,
    });
  }

  // ------------------------------------------------------------------------------ drawing

  /** One plot a frame, as long as there is time to spend; what it cost is paid off first. */
  #schedule(): void {
    if (this.#dirty.size === 0 || this.#timer !== undefined || this.#frame !== 0) return;
    if (this.#plotly === null || !this.#visible || this.signal.aborted) return;
    const now = performance.now();
    this.#earn(now);
    const debt = Math.max(0, -this.#purseMs) / SHARE;
    const wait = Math.max(0, debt, this.#lastRound + ROUND_MS - now);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#lastRound = performance.now();
      this.#drawNext([...this.#dirty]);
    }, wait);
  }

  #earn(now: number): void {
    this.#purseMs = Math.min(SAVED_MS, this.#purseMs + (now - this.#paidAt) * SHARE);
    this.#paidAt = now;
  }

  #drawNext(round: Plot[]): void {
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const plot = round.shift();
      if (plot !== undefined && this.#plotly !== null && this.#store !== null) {
        this.#dirty.delete(plot);
        const first = !plot.drawn;
        const began = performance.now();
        plot.draw(this.#plotly, this.series, this.#store, this.#look);
        const now = performance.now();
        this.#earn(now);
        // The first drawing is slow and comes once; a slow machine still sees a curve now and then.
        if (!first) this.#purseMs = Math.max(-MOST_DEBT_MS, this.#purseMs - (now - began));
      }
      const goesOn = this.#purseMs > 0 || round.some((each) => !each.drawn);
      if (round.length > 0 && goesOn) this.#drawNext(round);
      else this.#schedule();
    });
  }

  #close(): void {
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
    for (const plot of this.#byName.values()) plot.close(this.#plotly);
    this.#byName.clear();
    this.#dirty.clear();
  }
}

function chip(text: string, hint: string): HTMLButtonElement {
  return h("button", { type: "button", class: "it2-chip", text, title: hint });
}

interface PlotHands {
  zoom(range: [number, number] | null): void;
  select(seq: number | null): void;
  redraw(plot: Plot): void;
}

class Plot {
  readonly element: HTMLElement;
  /** Finer points of a zoomed stretch; null shows the whole. */
  zoomed: Line[] | null = null;
  colors: ReturnType<typeof readColors> | null = null;
  #div: ChartDiv = h("div", { class: "it2-plot-area" });
  #value = h("span", { class: "it2-mono it2-latest" });
  #wired = false;
  #width = 0;
  #figure: Figure | null = null;
  #points = 0;
  #restMs = 0;
  #restUntil = 0;

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

  /** Have Plotly draw it all the next time. */
  invalidate(): void {
    this.#figure = null;
  }

  draw(plotly: Plotly, series: Series, store: Store, look: Look): void {
    this.colors ??= readColors(this.#div);
    const lines = this.zoomed ?? series.lines(this.name);
    if (this.#stroke(lines, store, look)) return;
    const width = this.#div.clientWidth;
    this.#figure = figureOf(lines, store, look, this.colors, width, this.#restMs);
    const { data, layout, config } = this.#figure;
    this.#points = lines.reduce((sum, line) => sum + line.steps.length, 0);
    const began = performance.now();
    plotly.react(this.#div, data, layout, config);
    const now = performance.now();
    this.#restMs = Math.min(LONGEST_REST_MS, REST * (now - began));
    this.#restUntil = now + this.#restMs;
    if (!this.#wired) this.#wire();
  }

  /** Let the lines grow inside of the axes that are there; false where that can't be. */
  #stroke(lines: readonly Line[], store: Store, look: Look): boolean {
    const figure = this.#figure;
    // What the pointer reads is Plotly's own copy of the numbers: under it, all is drawn.
    if (figure === null || this.colors === null || this.#div.matches(":hover")) return false;
    const traces = strokesOf(lines, store, look, this.colors);
    const points = lines.reduce((sum, line) => sum + line.steps.length, 0);
    const added = points - this.#points;
    // Fewer than before: the line was thinned, or replaced by a snapshot.
    const from = added >= 0 ? added + 2 : points;
    if (traces.length !== figure.strokes) return false;
    // A curve that leaves its axes is cut off there for a moment, rather than drawn too often.
    const rests = performance.now() < this.#restUntil;
    if (!rests && !fits(traces, figure.frame, from)) return false;
    // The marks have a layer of their own, over the second y axis.
    const layers = [...this.#div.querySelectorAll(".scatterlayer")];
    const groups = layers.find((each) => each.closest(".xy2") === null)?.children ?? [];
    const width = this.#div.clientWidth - MARGIN.l - MARGIN.r;
    const height = this.#div.clientHeight - MARGIN.t - MARGIN.b;
    const paths = traces.map((_, at) => [...(groups[at]?.querySelectorAll("path.js-line") ?? [])]);
    if (paths.some((each) => each.length === 0)) return false;
    traces.forEach((trace, at) => {
      const [path, ...others] = paths[at] as [Element, ...Element[]];
      path.setAttribute("d", pathOf(trace, figure.frame, width, height));
      // Where a line has holes Plotly has a path for each stretch; ours holds them all.
      for (const other of others) other.setAttribute("d", "M0,0");
    });
    this.#points = points;
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
    const width = this.#div.clientWidth;
    if (!this.#wired || width === 0 || width === this.#width) return;
    this.#width = width;
    this.hands.redraw(this);
  }

  close(plotly: Plotly | null): void {
    if (this.#wired) plotly?.purge(this.#div);
    this.element.remove();
  }
}
