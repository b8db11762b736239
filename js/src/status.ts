/** The head of the panel: which run, how it is, how far, and what is wrong with it. */

import { h, setAttribute, setText, show } from "./dom";
import { clock, grouped, rate } from "./numbers";
import { WORDS } from "./place";
import { type Store, silentS } from "./store";
import { magicFor, pythonFor, QUIET_MS, roundText } from "./words";

/** Between two turns of the dot beside the status. */
const BEAT_MS = 900;

export class Status {
  readonly head = h("div", { class: "it2-facts" });
  readonly progress = h("div", {
    class: "it2-progress",
    role: "progressbar",
    "aria-label": "Progress",
    "aria-valuemin": 0,
    "aria-valuemax": 100,
  });
  readonly notices = h("div", { class: "it2-notices", "aria-live": "polite" });

  #name = h("span", { class: "it2-name" });
  #pill = h("span", { class: "it2-pill", role: "status" });
  #pillText = h("span");
  #round = h("span", {
    class: "it2-dim",
    title: "Counted from 1, the baseline; in Python round 0 is the baseline",
  });
  #dot = h("i", { "aria-hidden": "true" });
  #beatAt = 0;
  #heardAt = 0;
  #step = h("b");
  #total = h("span", { class: "it2-faint" });
  #rate = h("span", { class: "it2-dim" });
  #time = h("span", { class: "it2-dim it2-hide-s" });
  #bar = h("b");
  #shown = "";

  constructor(private readonly dismiss: (text: string) => void) {
    this.#pill.append(this.#dot, this.#pillText);
    this.head.append(
      this.#name,
      this.#pill,
      this.#round,
      h("span", { class: "it2-step" }, "step ", this.#step, this.#total),
      this.#rate,
      this.#time,
    );
    this.progress.append(this.#bar);
  }

  update(store: Store, now: number): void {
    const { head } = store;
    setText(this.#name, store.title || store.runId || "it2nb");
    setAttribute(this.#name, "title", store.runId);
    setText(this.#pillText, store.connected ? head.status : "disconnected");
    setAttribute(this.#pill, "data-status", store.connected ? head.status : "gone");
    const round = roundText(head);
    setText(this.#round, round);
    show(this.#round, round !== "");
    setText(this.#step, grouped(head.step));
    setText(this.#total, head.total_steps === null ? "" : ` / ${grouped(head.total_steps)}`);
    setAttribute(this.#step, "title", head.stepper === null ? null : `counted by ${head.stepper}`);
    const moving =
      store.connected &&
      head.status === "running" &&
      head.steps_per_s !== null &&
      head.steps_per_s > 0;
    setText(this.#rate, moving ? rate(head.steps_per_s ?? 0) : "");
    setText(this.#time, timeText(store, now));
    this.#beat(store, now);
    this.#updateBar(store);
    this.#updateNotices(store, now);
  }

  /**
   * The dot turns when the kernel was heard, and stands still when it wasn't. An endless animation
   * would have the browser draw sixty frames a second, beside a training on the same machine.
   */
  #beat(store: Store, now: number): void {
    if (store.heardAt === this.#heardAt || now - this.#beatAt < BEAT_MS) return;
    this.#heardAt = store.heardAt;
    this.#beatAt = now;
    setAttribute(this.#dot, "data-beat", this.#dot.hasAttribute("data-beat") ? null : "");
  }

  #updateBar({ head }: Store): void {
    const known = head.total_steps !== null && head.total_steps > 0;
    const share = known ? Math.min(1, head.step / (head.total_steps ?? 1)) : 0;
    setAttribute(this.progress, "aria-valuenow", known ? String(Math.round(share * 100)) : null);
    const text = `step ${grouped(head.step)}${known ? ` of ${grouped(head.total_steps ?? 0)}` : ""}`;
    setAttribute(this.progress, "aria-valuetext", text);
    this.#bar.style.width = `${share * 100}%`;
  }

  #updateNotices(store: Store, now: number): void {
    const notices = noticesOf(store, now);
    const key = JSON.stringify(notices);
    if (key === this.#shown) return;
    this.#shown = key;
    this.notices.replaceChildren(
      ...notices.map((notice) => {
        const line = h("div", { class: `it2-notice it2-${notice.tone}` });
        line.append(h("span", { class: "it2-grow", text: notice.text }));
        if (notice.code !== undefined) line.append(h("code", { text: notice.code }));
        if (notice.closes) {
          const close = h("button", {
            type: "button",
            class: "it2-x",
            "aria-label": "Dismiss",
            title: "Dismiss",
            text: "×",
            on: { click: () => this.dismiss(notice.text) },
          });
          line.append(close);
        }
        return line;
      }),
    );
    show(this.notices, notices.length > 0);
  }
}

/** Time since the start, and what is left of it where the length is known. */
export function timeText({ head, headAt, connected }: Store, now: number): string {
  // Nobody knows what became of a run whose kernel is gone: its clock stands.
  const live = connected && (head.status === "running" || head.status === "paused");
  const since = live ? Math.max(0, now - headAt) / 1_000 : 0;
  const elapsed = clock(head.elapsed_s + since);
  if (!live || head.status !== "running" || head.total_steps === null || !head.steps_per_s)
    return elapsed;
  const left = Math.max(0, head.total_steps - head.step) / head.steps_per_s;
  return `${elapsed} · ${clock(Math.max(0, left - since))} left`;
}

export interface Notice {
  tone: "no" | "clamp" | "wait";
  text: string;
  code?: string;
  /** Whether a hand may put it away. */
  closes?: boolean;
}

/** What is worth a line above the knobs, the worst first. */
export function noticesOf(store: Store, now: number): Notice[] {
  const notices: Notice[] = [];
  const { head } = store;
  const words = WORDS[store.place];
  if (head.error !== null) {
    const line = head.error_line === null ? "" : ` (line ${head.error_line})`;
    notices.push({ tone: "no", text: `${head.error}${line}` });
  }
  if (!store.connected) {
    notices.push({
      tone: "no",
      text: words.gone,
    });
  } else if (silentS(store, now) > 0) {
    notices.push({ tone: "no", text: words.silent(clock(silentS(store, now))) });
  }
  const stuck = Object.values(store.asks).filter(
    (ask) => !ask.received && now - ask.sentAt >= QUIET_MS,
  );
  const newest = stuck.at(-1);
  if (newest !== undefined && store.connected) {
    notices.push({
      tone: "wait",
      text: words.queued(stuck.length),
      code: `${pythonFor(store.variable, newest)}   ${magicFor(newest)}`,
    });
  }
  if (head.degraded !== null) {
    notices.push({ tone: "no", text: `The journal is not on disk: ${head.degraded}` });
  }
  for (const text of head.warnings) {
    if (!store.dismissed.includes(text)) notices.push({ tone: "clamp", text, closes: true });
  }
  for (const text of store.faults) notices.push({ tone: "no", text, closes: true });
  return notices;
}
