/** The page's end of the channel: who we are, what we asked, what we missed. */

import type { Port } from "./port";
import { type Happening, reduce, type Store } from "./store";
import type { Action, Json, PanelMessage, WindowAsk } from "./wire";

/**
 * One acknowledgement for this many batches, about one in twelve seconds: JupyterLab shows the
 * kernel busy and idle again for each, which costs the page more than a batch does.
 */
const ACK_EVERY = 50;
const HELLO_AGAIN_MS = 2_000;
const HELLO_RAREST_MS = 32_000;

export interface Clock {
  now(): number;
  later(callback: () => void, ms: number): () => void;
}

export const CLOCK: Clock = {
  now: () => performance.now(),
  later(callback, ms) {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};

export type Listener = (message: PanelMessage | null, data: Float64Array) => void;

export class Channel {
  readonly client: string;
  #port: Port;
  #clock: Clock;
  #store: Store;
  #onChange: Listener;
  #unacked = 0;
  #unlisten: () => void;
  #cancelHello: (() => void) | null = null;
  #watch: string[] | null = null;
  #lastAsk = 0;
  #patience = HELLO_AGAIN_MS;

  constructor(port: Port, client: string, store: Store, onChange: Listener, clock: Clock = CLOCK) {
    this.client = client;
    this.#port = port;
    this.#clock = clock;
    this.#store = store;
    this.#onChange = onChange;
    this.#unlisten = port.listen((message, data) => this.#receive(message, data));
  }

  get store(): Store {
    return this.#store;
  }

  /** Ask for a snapshot, and again until one is here. */
  hello(): void {
    if (this.#cancelHello !== null) return;
    this.#port.send({
      v: 2,
      kind: "hello",
      client: this.client,
      ...(this.#watch === null ? {} : { watch: this.#watch }),
    });
    this.#cancelHello = this.#clock.later(() => {
      this.#cancelHello = null;
      // A busy kernel finds all of these when the cell ends: the fewer the better.
      this.#patience = Math.min(2 * this.#patience, HELLO_RAREST_MS);
      if (!this.#store.synced) this.hello();
    }, this.#patience);
  }

  bye(): void {
    this.#port.send({ v: 2, kind: "bye", client: this.client });
  }

  /** Send one request. The result comes as a row; until then the store holds the ask. */
  submit(type: string, payload: { [key: string]: Json }, reason?: string): string {
    const id = newId();
    const { head } = this.#store;
    const action: Action = {
      v: 2,
      type,
      payload,
      id,
      observed: { step: head.step, metrics: seen(this.#store) },
    };
    if (reason) action.reason = reason;
    const name = typeof payload.name === "string" ? payload.name : null;
    const requested = payload.value ?? payload.mode ?? null;
    this.dispatch({
      kind: "asked",
      ask: { id, type, name, requested, sentAt: this.#clock.now(), received: false },
    });
    this.#port.send({ v: 2, kind: "submit", client: this.client, action });
    return id;
  }

  /** Let a request pass that waits for a person, or refuse it. */
  answer(id: string, approve: boolean): void {
    this.#port.send({ v: 2, kind: "answer", client: this.client, id, approve });
  }

  watch(names: string[]): void {
    this.#watch = names;
    this.dispatch({ kind: "watched", names });
    this.#port.send({ v: 2, kind: "watch", client: this.client, names });
  }

  /** Ask for finer curves; returns the number that the answer carries. */
  window(ask: Omit<WindowAsk, "v" | "kind" | "client" | "ask">): number {
    this.#lastAsk += 1;
    this.#port.send({ v: 2, kind: "window", client: this.client, ask: this.#lastAsk, ...ask });
    return this.#lastAsk;
  }

  /** Ask for older rows of these event types. */
  rows(types: string[]): void {
    this.#lastAsk += 1;
    this.#port.send({ v: 2, kind: "rows", client: this.client, ask: this.#lastAsk, types });
  }

  /** Ask for the picture that stands beside the panel. */
  picture(): void {
    this.#port.send({ v: 2, kind: "picture", client: this.client });
  }

  dispatch(happening: Happening): void {
    const next = reduce(this.#store, happening);
    if (next === this.#store) return;
    this.#store = next;
    this.#onChange(null, NONE);
  }

  close(): void {
    this.#unlisten();
    this.#cancelHello?.();
    this.#cancelHello = null;
  }

  #receive(message: PanelMessage, data: Float64Array): void {
    // Answers go to all pages; each takes its own.
    if ("to" in message && message.to !== this.client) return;
    const before = this.#store;
    this.#store = reduce(before, { kind: "message", message, now: this.#clock.now() });
    if (message.kind === "snapshot") {
      this.#cancelHello?.();
      this.#cancelHello = null;
      this.#patience = HELLO_AGAIN_MS;
      this.#unacked = 0;
    } else if (message.kind === "batch" && this.#store.n === message.n) {
      this.#unacked += 1;
      if (this.#unacked >= ACK_EVERY) {
        this.#unacked = 0;
        this.#port.send({ v: 2, kind: "ack", client: this.client, n: message.n });
      }
    }
    if (!this.#store.synced) this.hello();
    const applied = message.kind !== "batch" || this.#store.n === message.n;
    if (applied) this.#onChange(message, data);
  }
}

const NONE = new Float64Array(0);

function seen(store: Store): { [key: string]: Json } {
  const metrics: { [key: string]: Json } = {};
  for (const [name, latest] of Object.entries(store.head.metrics).slice(0, 16)) {
    metrics[name] = latest.value ?? latest.nonfinite;
  }
  return metrics;
}

function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
