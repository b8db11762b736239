/** One session a page, any number of views of it. */

import { Actions } from "./actions";
import { Agents } from "./agents";
import { Approvals } from "./approvals";
import { Channel } from "./channel";
import type { Plotly } from "./chart";
import { Curves } from "./curves";
import { h, setAttribute } from "./dom";
import { JournalView } from "./journal";
import { Knobs } from "./knobs";
import { OutputView } from "./output";
import { type Place, WORDS } from "./place";
import type { Model, Port } from "./port";
import { Rules } from "./rules";
import { Series } from "./series";
import { Status } from "./status";
import { canWait, EMPTY, isOver, type Store, silentS } from "./store";
import css from "./styles.css?inline";
import type { PanelMessage, Picture } from "./wire";
import { hasRounds } from "./words";

export interface Start {
  port: Port;
  client: string;
  chart(): Promise<unknown>;
  control: Promise<Model>;
  place?: Place;
  /** Puts the picture of a run that is over where it is saved. */
  keep?(bundle: Bundle): void;
}

export type Bundle = Picture["bundle"];

export interface PanelModule {
  open(start: Start): Session;
}

/** Texts that tell how long something waits are renewed this often. */
const TICK_MS = 1_000;
/**
 * Numbers alone are drawn at most this often, with every other batch: most of what a frame costs
 * is the same however little of it has changed.
 */
const NUMBERS_MS = 450;
/** What waits for the next batch's frame gets one of its own after this time. */
const LATE_NUMBERS_MS = 2 * NUMBERS_MS;

export function open(start: Start): Session {
  return new Session(start);
}

export class Session {
  readonly channel: Channel;
  readonly series = new Series();
  #views = new Set<View>();
  #chart: () => Promise<unknown>;
  #changed = new Set<string>();
  #shown = EMPTY.head;
  #frame = 0;
  #drawnAt = Number.NEGATIVE_INFINITY;
  #late: ReturnType<typeof setTimeout> | undefined;
  #tick: ReturnType<typeof setInterval> | undefined;
  #keep: Start["keep"];
  #kept = false;
  #leave = () => {
    if (this.#views.size > 0) this.channel.bye();
  };
  #comeBack = (event: PageTransitionEvent) => {
    if (event.persisted && this.#views.size > 0) this.channel.hello();
  };

  constructor({ port, client, chart, control, keep, place = "notebook" }: Start) {
    this.#chart = chart;
    this.#keep = keep;
    this.channel = new Channel(port, client, { ...EMPTY, place }, (message, data) =>
      this.#receive(message, data),
    );
    control.then(
      (model) => {
        const heard = () => {
          this.channel.dispatch({ kind: "connected", connected: model.comm_live !== false });
        };
        model.on("comm_live_update", heard);
      },
      () => undefined,
    );
  }

  show(element: HTMLElement, signal: AbortSignal): void {
    const view = new View(this, element, signal);
    this.#views.add(view);
    if (this.#views.size === 1) this.#wake();
    else if (this.channel.store.synced) view.update(this.channel.store, new Set());
    signal.addEventListener("abort", () => {
      this.#views.delete(view);
      if (this.#views.size === 0) this.#rest();
    });
  }

  chart(): Promise<Plotly> {
    return this.#chart().then((module) => (module as { default: Plotly }).default);
  }

  close(): void {
    this.#rest();
    this.channel.dispatch({ kind: "connected", connected: false });
    for (const view of this.#views) view.update(this.channel.store, new Set());
    this.channel.close();
  }

  #wake(): void {
    this.channel.hello();
    this.#tick = setInterval(() => {
      // The last batch of a run has none after it that would show that it was lost on the way.
      if (silentS(this.channel.store, performance.now()) > 0) this.channel.hello();
      // While batches come their frames tell the time as well.
      if (performance.now() - this.#drawnAt > LATE_NUMBERS_MS) this.#draw();
    }, TICK_MS);
    window.addEventListener("pagehide", this.#leave);
    window.addEventListener("pageshow", this.#comeBack);
  }

  #rest(): void {
    if (this.#tick === undefined) return;
    clearInterval(this.#tick);
    this.#tick = undefined;
    clearTimeout(this.#late);
    this.#late = undefined;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    window.removeEventListener("pagehide", this.#leave);
    window.removeEventListener("pageshow", this.#comeBack);
    this.channel.bye();
  }

  #receive(message: PanelMessage | null, data: Float64Array): void {
    switch (message?.kind) {
      case "snapshot":
        this.series.clear();
        for (const curve of message.curves) this.series.append(curve, data);
        for (const name of message.watch) this.#changed.add(name);
        break;
      case "batch":
        for (const curve of message.curves) {
          if (!this.channel.store.watch.includes(curve.name)) continue;
          this.series.append(curve, data);
          this.#changed.add(curve.name);
        }
        break;
      case "window":
        for (const view of this.#views) view.curves.window(message.ask, message.curves, data);
        break;
      case "picture":
        this.#keep?.(message.bundle);
        return;
      case undefined:
        this.series.keep(this.channel.store.watch);
        break;
    }
    this.#keepPicture();
    if (message?.kind === "batch" && canWait(message, this.#shown)) this.#scheduleNumbers();
    else this.#schedule();
  }

  /** The kernel renews the picture itself, but not in a page that was loaded after the display. */
  #keepPicture(): void {
    const { synced } = this.channel.store;
    if (this.#kept || this.#keep === undefined || !synced || !isOver(this.channel.store)) return;
    this.#kept = true;
    this.channel.picture();
  }

  #scheduleNumbers(): void {
    if (performance.now() - this.#drawnAt >= NUMBERS_MS) this.#schedule();
    else this.#late ??= setTimeout(() => this.#schedule(), LATE_NUMBERS_MS);
  }

  /** Several messages of one frame are one drawing. */
  #schedule(): void {
    clearTimeout(this.#late);
    this.#late = undefined;
    if (this.#frame !== 0 || this.#views.size === 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw(): void {
    // Before the first snapshot there is nothing to show; after a gap the last state stays.
    if (this.channel.store.n < 0) return;
    this.#drawnAt = performance.now();
    this.#shown = this.channel.store.head;
    for (const view of this.#views) view.update(this.channel.store, this.#changed);
    this.#changed.clear();
  }
}

const LATE_MS = 2_000;

/**
 * Keys pressed in here are ours, not the notebook's. JupyterLab looks for it on the focused
 * element before it looks further out, so each one that gets the focus needs it.
 */
const SUPPRESS = "data-lm-suppress-shortcuts";

const CONTROLS = ["knobs", "knobNames", "actions", "asks", "said", "connected"] as const;

class View {
  readonly curves: Curves;
  #root: HTMLElement;
  #status: Status;
  #actions: Actions;
  #knobs: Knobs;
  #journal: JournalView;
  #output: OutputView;
  #rules = new Rules();
  #approvals: Approvals;
  #agents: Agents;
  #live = false;
  #place: Place;
  #last: Store | null = null;

  constructor(session: Session, parent: HTMLElement, signal: AbortSignal) {
    const { channel } = session;
    this.#place = channel.store.place;
    addStyles(parent);
    this.#status = new Status((text) => channel.dispatch({ kind: "dismissed", text }));
    this.#actions = new Actions((type, payload) => channel.submit(type, payload), signal);
    this.#knobs = new Knobs(
      (name, value) => channel.submit("set_knob", { name, value }),
      (name, mode) => channel.submit("set_mode", { name, mode }),
      signal,
    );
    const select = (seq: number | null) => {
      this.curves.select(seq);
      this.#journal.show(seq);
    };
    this.curves = new Curves(
      session.series,
      {
        watch: (names) => channel.watch(names),
        window: (ask) => channel.window(ask),
        select,
        chart: () => session.chart(),
        late: WORDS[this.#place].chart,
      },
      signal,
    );
    this.#journal = new JournalView(select, (types) => channel.rows(types), signal);
    this.#output = new OutputView(signal);
    this.#approvals = new Approvals((id, approve) => channel.answer(id, approve));
    this.#agents = new Agents((type, payload) => channel.submit(type, payload));
    this.#root = this.#build();
    this.#sayWhenLate(signal);
    // For whoever looks at a page from outside: tests, a console.
    Object.defineProperty(this.#root, "it2nb", { value: session });
    this.#root.addEventListener("keydown", (event) => this.#key(event), { signal });
    this.#root.addEventListener(
      "focusin",
      (event) => (event.target as Element).setAttribute(SUPPRESS, "true"),
      { signal },
    );
    parent.append(this.#root);
    signal.addEventListener("abort", () => this.#root.remove(), { once: true });
  }

  update(store: Store, changed: ReadonlySet<string>): void {
    const now = performance.now();
    if (!this.#live) {
      this.#live = true;
      this.#root.dataset.live = "";
      this.#root.querySelector(".it2-loading")?.remove();
    }
    setAttribute(this.#root, "aria-label", `Run ${store.title || store.runId}`);
    setAttribute(this.#root, "data-status", store.head.status);
    setAttribute(this.#root, "data-stale", store.synced ? null : "");
    this.#status.update(store, now);
    const last = this.#last;
    this.#last = store;
    // Most batches bring numbers alone; waiting requests are told by the time that passes.
    const controls =
      last === null ||
      CONTROLS.some((part) => last[part] !== store[part]) ||
      last.head.status !== store.head.status ||
      Object.keys(store.asks).length > 0;
    if (controls) {
      this.#actions.update(store, now);
      this.#knobs.update(store, now);
    }
    this.#approvals.update(store.waiting);
    this.#agents.update(store);
    this.#rules.update(store.policy);
    this.#output.update(store.output);
    this.curves.update(store, changed);
    this.#journal.update(store.rows, store.marks, store.variable, hasRounds(store.head));
  }

  #build(): HTMLElement {
    const head = h("header", {}, this.#status.head, this.#actions.buttons, this.#actions.menu);
    const main = h("div", { class: "it2-main" }, this.#knobs.element, this.curves.element);
    return h(
      "section",
      {
        class: "it2",
        tabindex: 0,
        "aria-label": "Run",
        [SUPPRESS]: "true",
      },
      h("div", { class: "it2-loading", role: "status", text: WORDS[this.#place].waiting }),
      head,
      this.#status.progress,
      this.#actions.drawer,
      this.#actions.said,
      this.#approvals.element,
      this.#status.notices,
      main,
      this.#agents.element,
      this.#journal.element,
      this.#output.element,
      this.#rules.element,
    );
  }

  #sayWhenLate(signal: AbortSignal): void {
    const late = setTimeout(() => {
      const loading = this.#root.querySelector(".it2-loading");
      if (loading !== null) loading.textContent = WORDS[this.#place].late;
    }, LATE_MS);
    signal.addEventListener("abort", () => clearTimeout(late), { once: true });
  }

  #key(event: KeyboardEvent): void {
    const command = event.ctrlKey || event.metaKey;
    if (command && !event.altKey && !event.shiftKey && event.key === "s") {
      // The one key of the notebook that has to work from in here (extension.ts).
      event.preventDefault();
      dispatchEvent(new CustomEvent("it2nb:save"));
      return;
    }
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    const typing =
      target.matches("select, textarea") ||
      (target instanceof HTMLInputElement && !["range", "checkbox"].includes(target.type));
    if (event.key === "Escape") {
      if (this.#actions.close() || typing) this.#root.focus();
      return;
    }
    if (typing) return;
    switch (event.key) {
      case "p":
        this.#actions.pauseOrResume();
        break;
      case "e":
        this.#actions.press("evaluate");
        break;
      case "s":
        this.#actions.press("save_checkpoint");
        break;
      case "/":
        this.#knobs.search.focus();
        break;
      default:
        return;
    }
    event.preventDefault();
  }
}

/** The style sheet once a document. */
function addStyles(near: HTMLElement): void {
  const scope = near.getRootNode();
  const place = scope instanceof ShadowRoot ? scope : document.head;
  if (place.querySelector("style[data-it2nb]") !== null) return;
  const style = document.createElement("style");
  style.dataset.it2nb = "";
  style.textContent = css;
  place.append(style);
}
