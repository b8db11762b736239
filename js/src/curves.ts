/** The curves: a plot for each watched metric, with a line where a change came into force. */

import type { Plotly } from "./chart";
import { h, setAttribute, setText, show } from "./dom";
import { endsOf, type Look, rangeOfAll } from "./figure";
import { Plot } from "./plot";
import { Purse } from "./purse";
import { type Line, lineOf, type Series } from "./series";
import type { Store } from "./store";
import type { Range } from "./strokes";
import type { Curve, WindowAsk } from "./wire";

/** Between two rounds: lines grow with every other batch of numbers, in its frame. */
const ROUND_MS = 450;
/** After this time they grow in a frame of their own, where no batch has brought one. */
const LATE_MS = 2 * ROUND_MS;
/** Room of plots that share an axis, in rests: when it ends all are drawn, so it ends more rarely. */
const SHARED_ROOM = 1.25;
const POINTS = 2_000;
const SMOOTHING = [0, 0.6, 0.9, 0.97, 0.99];

export interface Hands {
  watch(names: string[]): void;
  window(ask: Omit<WindowAsk, "v" | "kind" | "client" | "ask">): number;
  select(seq: number | null): void;
  chart(): Promise<Plotly>;
  /** Said while the chart library is waited for. */
  late: string;
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
  #askedEnd = 0;
  #askedBranches: Store["branches"] = [];
  #visible = true;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = 0;
  #reminder: ReturnType<typeof setTimeout> | undefined;
  #frame = 0;
  #purse = new Purse();
  #dirty = new Set<Plot>();
  /** Of these, what somebody looks for: it is drawn at once, and costs the others no time. */
  #urgent = new Set<Plot>();
  #sizes = new ResizeObserver(() => {
    for (const plot of this.#byName.values()) plot.resize();
  });
  #lastRound = 0;
  /** The x axis of all plots; null where it is to be found anew. */
  #range: Range | null = null;

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
    const turned = before?.head.status !== store.head.status;
    const whole =
      fresh || turned || before?.marks !== store.marks || before?.branches !== store.branches;
    if (whole) this.#range = null;
    for (const [name, plot] of this.#byName) {
      if (whole) plot.invalidate();
      if (whole || changed.has(name)) this.#dirty.add(plot);
      if (turned) this.#urgent.add(plot);
    }
    // What is shown anew has its whole curve only.
    this.#refine(fresh);
    this.#growInPassing();
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
      this.#sizes.unobserve(plot.element);
      plot.close(this.#plotly);
      this.#dirty.delete(plot);
      this.#urgent.delete(plot);
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
          this.#urgent.add(one);
          this.#schedule();
        },
      });
      this.#byName.set(name, plot);
      // Each by itself: with one more beside it a plot is smaller, and all together are not.
      this.#sizes.observe(plot.element);
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
      this.#noteText = this.hands.late;
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
      this.#sizes.disconnect();
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
    this.#range = null;
    for (const plot of this.#byName.values()) {
      plot.colors = null;
      plot.invalidate();
      this.#dirty.add(plot);
      this.#urgent.add(plot);
    }
    this.#lastRound = 0;
    // What a person asked for is drawn at once.
    this.#purse.fill();
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

  /** Ask for the points of the zoomed stretch; again as long as it was not whole when asked for. */
  #refine(now: boolean): void {
    const { zoom, axis } = this.#look;
    if (zoom === null || this.#store === null) return;
    const { head, watch, branches } = this.#store;
    const end = axis === "step" ? head.step : head.elapsed_s;
    const more = end !== this.#askedEnd && Math.min(end, this.#askedEnd) < zoom[1];
    const restMs = head.status === "running" ? 2_000 : 300;
    const rested = performance.now() - this.#askedAt > restMs;
    const again = rested && (more || branches !== this.#askedBranches);
    if (!now && !again) return;
    this.#askedAt = performance.now();
    this.#askedEnd = end;
    this.#askedBranches = branches;
    this.#asked = this.hands.window({
      names: watch.slice(0, 12),
      axis,
      lo: zoom[0],
      hi: zoom[1],
      points: POINTS,
    });
  }

  // ------------------------------------------------------------------------------ drawing

  /** Lines that fit into their axes grow in the frame that is being made anyway. */
  #growInPassing(): void {
    const now = performance.now();
    if (this.#purse.waitMs(now) > 0 || now - this.#lastRound < ROUND_MS) return;
    this.#grow();
    if (this.#dirty.size > 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #grow(): void {
    if (this.#plotly === null || !this.#visible || this.#store === null) return;
    const began = performance.now();
    for (const plot of this.#dirty) {
      if (plot.grow(this.series, this.#store, this.#look)) this.#dirty.delete(plot);
    }
    this.#lastRound = began;
    this.#purse.pay(began);
    this.#remind();
  }

  /** See to what is cut off or left out, also when nothing new comes: a long step, a lost kernel. */
  #remind(): void {
    const dueAt = Math.min(...[...this.#byName.values()].map((plot) => plot.dueAt));
    clearTimeout(this.#reminder);
    if (!Number.isFinite(dueAt)) return;
    this.#reminder = setTimeout(
      () => {
        const now = performance.now();
        for (const plot of this.#byName.values()) if (plot.dueAt <= now) this.#dirty.add(plot);
        this.#schedule();
      },
      Math.max(0, dueAt - performance.now()) + 1,
    );
  }

  /** What has to be drawn by Plotly has a frame each; what it cost is paid off first. */
  #schedule(): void {
    if (this.#dirty.size === 0 || this.#frame !== 0) return;
    if (this.#plotly === null || !this.#visible || this.signal.aborted) return;
    const now = performance.now();
    const debt = this.#urgent.size > 0 ? 0 : this.#purse.waitMs(now);
    // A frame costs more than what is done in it here: lines that only grow wait for the next batch.
    const rest = [...this.#dirty].some((plot) => plot.isDue(now)) ? ROUND_MS : LATE_MS;
    const wait = Math.max(0, debt, this.#lastRound + rest - now);
    if (this.#timer !== undefined) {
      if (now + wait >= this.#timerAt) return;
      clearTimeout(this.#timer);
    }
    this.#timerAt = now + wait;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#frame = requestAnimationFrame(() => {
        this.#frame = 0;
        this.#grow();
        this.#drawNext([...this.#dirty]);
      });
    }, wait);
  }

  /** The x axis for a plot: where it has ended, all plots get the next one in this round. */
  #rangeFor(plot: Plot, store: Store): Range {
    const plots = [...this.#byName.values()];
    const lines = plots.map((each) => each.lines(this.series));
    const [first, last] = endsOf(lines, this.#look);
    const now = this.#range;
    if (now !== null && (this.#look.zoom !== null || (first >= now[0] && last <= now[1])))
      return now;
    const room = plots.length > 1 ? SHARED_ROOM : 1;
    const restMs = room * Math.max(...plots.map((each) => each.restMs));
    this.#range = rangeOfAll(lines, store, this.#look, restMs);
    for (const each of plots) {
      if (each === plot) continue;
      each.invalidate();
      this.#dirty.add(each);
    }
    return this.#range;
  }

  #drawNext(round: Plot[]): void {
    const plot = round.shift();
    if (plot !== undefined && this.#plotly !== null && this.#store !== null) {
      this.#dirty.delete(plot);
      // The first drawing is slow and comes once.
      const free = this.#urgent.delete(plot) || !plot.drawn;
      const began = performance.now();
      const [store, range] = [this.#store, this.#range];
      plot.draw(this.#plotly, this.series, store, this.#look, () => this.#rangeFor(plot, store));
      if (this.#range !== range) round = [...this.#dirty];
      if (!free) this.#purse.pay(began);
    }
    const waits = round.some((each) => !each.drawn || this.#urgent.has(each));
    const goesOn = waits || !this.#purse.isEmpty;
    if (round.length === 0 || !goesOn) {
      this.#schedule();
      return;
    }
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#drawNext(round);
    });
  }

  #close(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#reminder);
    cancelAnimationFrame(this.#frame);
    for (const plot of this.#byName.values()) plot.close(this.#plotly);
    this.#byName.clear();
    this.#dirty.clear();
    this.#urgent.clear();
  }
}

function chip(text: string, hint: string): HTMLButtonElement {
  return h("button", { type: "button", class: "it2-chip", text, title: hint });
}
