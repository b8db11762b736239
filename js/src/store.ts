/** What a page knows of a run: a pure reducer over messages, own requests and time. */

import type { Place } from "./place";
import type {
  ActionSchema,
  AgentView,
  Batch,
  Branch,
  Head,
  Json,
  KnobView,
  Mark,
  Output,
  OutputLine,
  PanelMessage,
  Row,
  Snapshot,
  Waiting,
} from "./wire";

export const MOST_ROWS = 400;
export const MOST_MARKS = 500;
const MOST_FAULTS = 5;
export const MOST_LINES = 300;

/** A request of this page that has no result yet. */
export interface Ask {
  id: string;
  type: string;
  name: string | null;
  requested: Json;
  /** Milliseconds, the page's clock. */
  sentAt: number;
  /** Whether the kernel has said that it has it. */
  received: boolean;
}

export interface Store {
  place: Place;
  /** Whether everything up to `n` is here; false asks for a snapshot. */
  synced: boolean;
  n: number;
  runId: string;
  title: string;
  head: Head;
  knobs: { [name: string]: KnobView };
  knobNames: string[];
  actions: ActionSchema[];
  branches: Branch[];
  waiting: Waiting[];
  /** Controllers that are no rules, an agent mostly. */
  agents: AgentView[];
  /** What people told controllers about this run. */
  context: string;
  /** The rules in force, a sentence each. */
  policy: string[];
  /** Metrics whose curves are shown. */
  watch: string[];
  /** Oldest first, by seq, without a gap in what was sent. */
  rows: Row[];
  marks: Mark[];
  asks: { [id: string]: Ask };
  /** The last result of an action that is not about a knob. */
  said: Row | null;
  /** What the run printed, by line, oldest first; a line that is left out comes later. */
  output: OutputLine[];
  faults: string[];
  /** Warnings of the run that a hand has put away; one that comes again is shown again. */
  dismissed: string[];
  subshell: boolean;
  variable: string;
  heartbeatS: number | null;
  /** When the kernel was last heard, milliseconds of the page's clock. */
  heardAt: number;
  /** When `head` was heard: until the next one the page lets its clock run on. */
  headAt: number;
  connected: boolean;
}

export type Happening =
  | { kind: "message"; message: PanelMessage; now: number }
  | { kind: "asked"; ask: Ask }
  | { kind: "watched"; names: string[] }
  | { kind: "connected"; connected: boolean }
  | { kind: "dismissed"; text: string };

export const EMPTY: Store = {
  place: "notebook",
  synced: false,
  n: -1,
  runId: "",
  title: "",
  head: {
    status: "created",
    step: 0,
    total_steps: null,
    steps_per_s: null,
    elapsed_s: 0,
    branch_id: 0,
    round: 0,
    max_rounds: null,
    pending: 0,
    stepper: null,
    error: null,
    error_line: null,
    degraded: null,
    warnings: [],
    metrics: {},
  },
  knobs: {},
  knobNames: [],
  actions: [],
  branches: [],
  waiting: [],
  agents: [],
  context: "",
  policy: [],
  watch: [],
  rows: [],
  marks: [],
  asks: {},
  said: null,
  output: [],
  faults: [],
  dismissed: [],
  subshell: false,
  variable: "it2nb.current()",
  heartbeatS: null,
  heardAt: 0,
  headAt: 0,
  connected: true,
};

export function reduce(store: Store, happening: Happening): Store {
  switch (happening.kind) {
    case "message":
      return receive(store, happening.message, happening.now);
    case "asked":
      return { ...store, asks: { ...store.asks, [happening.ask.id]: happening.ask } };
    case "watched":
      return { ...store, watch: happening.names };
    case "connected":
      return happening.connected === store.connected
        ? store
        : { ...store, connected: happening.connected };
    case "dismissed":
      return dismiss(store, happening.text);
    default:
      return never(happening);
  }
}

function dismiss(store: Store, text: string): Store {
  const faults = store.faults.filter((fault) => fault !== text);
  return { ...store, faults, dismissed: stillSaid([...store.dismissed, text], store.head) };
}

/** Of what was put away, the warnings that hold. */
function stillSaid(dismissed: string[], head: Head): string[] {
  return dismissed.every((text) => head.warnings.includes(text))
    ? dismissed
    : dismissed.filter((text) => head.warnings.includes(text));
}

function receive(store: Store, message: PanelMessage, now: number): Store {
  const heard = { ...store, heardAt: now, connected: true };
  switch (message.kind) {
    case "snapshot":
      return snapshot(heard, message);
    case "batch":
      // Before the snapshot is here, batches are not ours to apply; after a gap neither.
      if (!store.synced) return heard;
      if (message.n <= store.n) return heard;
      if (message.n !== store.n + 1) return { ...heard, synced: false };
      return batch(heard, message);
    case "heartbeat":
      return store.synced && message.n > store.n ? { ...heard, synced: false } : heard;
    case "rows":
      return { ...heard, rows: mergeRows(store.rows, message.rows) };
    case "window":
    case "picture":
    case "asset":
      return heard;
    default:
      return never(message);
  }
}

function snapshot(store: Store, message: Snapshot): Store {
  const { state } = message;
  const rows = mergeRows(store.runId === state.run_id ? store.rows : [], message.rows);
  return settle(
    {
      ...store,
      synced: true,
      n: message.n,
      headAt: store.heardAt,
      runId: state.run_id,
      title: state.title,
      head: {
        status: state.status,
        step: state.step,
        total_steps: state.total_steps,
        steps_per_s: state.steps_per_s,
        elapsed_s: state.elapsed_s,
        branch_id: state.branch_id,
        round: state.round,
        max_rounds: state.max_rounds,
        pending: state.pending,
        stepper: state.stepper,
        error: state.error,
        error_line: state.error_line,
        degraded: state.degraded,
        warnings: state.warnings,
        metrics: state.metrics,
      },
      knobs: Object.fromEntries(state.knobs.map((knob) => [knob.name, knob])),
      knobNames: state.knobs.map((knob) => knob.name),
      actions: state.actions,
      branches: state.branches,
      waiting: state.waiting,
      agents: message.agents,
      context: state.context,
      policy: sentences(state.policy),
      watch: message.watch,
      rows,
      marks: message.marks.slice(-MOST_MARKS),
      output: mergeOutput([], message.output),
      faults: message.faults.slice(-MOST_FAULTS),
      subshell: message.subshell,
      variable: message.variable,
      heartbeatS: message.heartbeat_s,
    },
    rows,
    message.received,
  );
}

function sentences(policy: { [key: string]: Json }): string[] {
  const said = policy.said;
  return Array.isArray(said) ? said.filter((each) => typeof each === "string") : [];
}

function batch(store: Store, message: Batch): Store {
  let next: Store = { ...store, n: message.n };
  if (message.head !== null) {
    next.head = message.head;
    next.headAt = store.heardAt;
    next.dismissed = stillSaid(store.dismissed, message.head);
  }
  if (message.knobs.length > 0) {
    next.knobs = { ...next.knobs };
    for (const knob of message.knobs) next.knobs[knob.name] = knob;
  }
  if (message.knob_names !== null) next.knobNames = message.knob_names;
  if (message.actions !== null) next.actions = message.actions;
  if (message.branches !== null) next.branches = message.branches;
  if (message.subshell !== null) next.subshell = message.subshell;
  if (message.waiting !== null) next.waiting = message.waiting;
  if (message.policy !== null) next.policy = message.policy;
  if (message.agents !== null) next.agents = message.agents;
  if (message.context !== null) next.context = message.context;
  if (message.rows.length > 0) next.rows = mergeRows(next.rows, message.rows);
  if (message.marks.length > 0) next.marks = mergeMarks(next.marks, message.marks);
  if (message.faults.length > 0) {
    next.faults = [...new Set([...next.faults, ...message.faults])].slice(-MOST_FAULTS);
  }
  if (message.output !== null) next.output = mergeOutput(next.output, message.output);
  const results = [...message.rows, ...message.unrecorded];
  if (results.length > 0 || message.received.length > 0) {
    next = settle(next, results, message.received);
  }
  return next;
}

/** Own requests that have a result are over; those that the kernel has are marked so. */
function settle(store: Store, rows: Row[], received: string[]): Store {
  let said = store.said;
  let asks = store.asks;
  const change = (id: string, ask: Ask | null) => {
    if (asks === store.asks) asks = { ...asks };
    if (ask === null) delete asks[id];
    else asks[id] = ask;
  };
  for (const row of rows) {
    if (row.type !== "action_result" || row.action_id === null) continue;
    const mine = row.action_id in asks;
    if (mine) change(row.action_id, null);
    if (row.name === null && (mine || row.seq > (said?.seq ?? -1))) said = row;
  }
  for (const id of received) {
    const ask = asks[id];
    if (ask !== undefined && !ask.received) change(id, { ...ask, received: true });
  }
  return { ...store, asks, said };
}

/** Rows by seq, each once. */
export function mergeRows(have: Row[], more: Row[]): Row[] {
  const last = have.at(-1);
  const first = more[0];
  if (first === undefined) return have;
  if (last === undefined || first.seq > last.seq) return [...have, ...more].slice(-MOST_ROWS);
  const all = new Map<number, Row>();
  for (const row of have) all.set(row.seq, row);
  for (const row of more) all.set(row.seq, row);
  return [...all.values()].sort((a, b) => a.seq - b.seq).slice(-MOST_ROWS);
}

function mergeMarks(have: Mark[], more: Mark[]): Mark[] {
  const known = new Set(have.map((mark) => mark.seq));
  return [...have, ...more.filter((mark) => !known.has(mark.seq))].slice(-MOST_MARKS);
}

/** Lines by number: a newer one stands for the one before it, those that are over are dropped. */
export function mergeOutput(have: OutputLine[], output: Output | null): OutputLine[] {
  if (output === null) return have;
  const { first, lines } = output;
  const lastHave = have.at(-1)?.line ?? -1;
  const kept =
    have[0] !== undefined && have[0].line < first ? have.filter((o) => o.line >= first) : have;
  if (lines[0] === undefined) return kept;
  if (lines[0].line > lastHave) return [...kept, ...lines].slice(-MOST_LINES);
  const all = new Map<number, OutputLine>();
  for (const each of kept) all.set(each.line, each);
  for (const each of lines) all.set(each.line, each);
  return [...all.values()].sort((a, b) => a.line - b.line).slice(-MOST_LINES);
}

/** Whether a batch brings numbers and printed lines alone, which the next frame may show as well. */
export function canWait(message: Batch, shown: Head): boolean {
  const { head } = message;
  const said = [message.rows, message.marks, message.unrecorded, message.received, message.faults];
  const parts = [
    message.knob_names,
    message.actions,
    message.branches,
    message.waiting,
    message.policy,
    message.agents,
    message.context,
    message.subshell,
  ];
  return (
    said.every((each) => each.length === 0) &&
    parts.every((each) => each === null) &&
    (head === null ||
      (head.status === shown.status &&
        head.error === shown.error &&
        head.degraded === shown.degraded &&
        head.warnings.join() === shown.warnings.join()))
  );
}

export function isOver(store: Pick<Store, "head">): boolean {
  const { status } = store.head;
  return status === "stopped" || status === "finished" || status === "failed";
}

/** Silence that is worth a word, in heartbeats. */
const MISSED_BEATS = 3;

/** Seconds without a word of the kernel where there should have been one; 0 where all is well. */
export function silentS(store: Store, now: number): number {
  if (!store.connected || store.heartbeatS === null || isOver(store)) return 0;
  const silent = (now - store.heardAt) / 1_000;
  return silent > MISSED_BEATS * store.heartbeatS ? silent : 0;
}

/** The newest request of this page for a knob that has no result yet. */
export function askFor(store: Store, name: string): Ask | null {
  let newest: Ask | null = null;
  for (const ask of Object.values(store.asks)) {
    if (ask.name === name && (newest === null || ask.sentAt >= newest.sentAt)) newest = ask;
  }
  return newest;
}

export function never(value: never): never {
  throw new Error(`unexpected: ${JSON.stringify(value)}`);
}
