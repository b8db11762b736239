/** The panel with recorded messages, without a kernel: for looking at it, and for screenshots. */

import golden from "../../tests/golden/panel.json";
import { Session } from "../src/index";
import type { Model, Port } from "../src/port";
import { numbersOf } from "../src/port";
import type { KnobView, PanelMessage, PanelRequest, Row } from "../src/wire";

const query = new URLSearchParams(location.search);
document.documentElement.dataset.theme = query.get("theme") ?? "light";

type Heard = (message: PanelMessage, data: Float64Array, raw: DataView[]) => void;

const client = "golden-page";
const heard = new Set<Heard>();
let n = 8;

function tell(message: PanelMessage, buffer = ""): void {
  const bytes = Uint8Array.from(atob(buffer), (each) => each.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  for (const each of heard) each(message, numbersOf(view), [view]);
}

function record(index: number): { message: PanelMessage; buffer: string } {
  return golden.messages[index] as unknown as { message: PanelMessage; buffer: string };
}

/** Answers as a run would that does whatever it is asked. */
function answer(request: PanelRequest): void {
  if (request.kind === "hello") {
    for (const at of [0, 1]) tell(record(at).message, record(at).buffer);
    const story = query.get("story");
    if (story !== null) tellStory(story);
  }
  if (request.kind !== "submit" || query.get("deaf") !== null) return;
  const { action } = request;
  const row: Row = {
    ...((record(0).message as { rows: Row[] }).rows.at(-1) as Row),
    seq: 60 + n,
    action_id: action.id ?? null,
    action: action.type,
    name: (action.payload?.name as string | undefined) ?? null,
    requested: action.payload?.value ?? null,
    after: action.payload?.value ?? null,
    status: "applied",
  };
  n += 1;
  tell({ ...batch(), n, rows: [row] });
}

function batch(): Extract<PanelMessage, { kind: "batch" }> {
  const { message } = record(1);
  if (message.kind !== "batch") throw new Error("the golden file has changed");
  const nothing = { knobs: [], actions: null, knob_names: null, rows: [], marks: [], curves: [] };
  return { ...message, ...nothing, faults: [], received: [] };
}

function tellStory(story: string): void {
  const { head } = batch();
  if (head === null) return;
  n += 1;
  if (story === "failed") {
    const error = "RuntimeError: CUDA error: an illegal memory access was encountered";
    tell({ ...batch(), n, head: { ...head, status: "failed", error, error_line: 14 } });
  }
  if (story === "paused") {
    const warnings = ["step 1,100: loss was nan; guard 'finite' paused the run"];
    tell({ ...batch(), n, head: { ...head, status: "paused", warnings } });
  }
  if (story === "many") tell({ ...batch(), n, ...manyKnobs() });
}

/** As many knobs as a model with a few layers has. */
function manyKnobs(): { knobs: KnobView[]; knob_names: string[] } {
  const { state } = record(0).message as Extract<PanelMessage, { kind: "snapshot" }>;
  const like = state.knobs.find((each) => each.name === "dropout.p") as KnobView;
  const layers = Array.from({ length: 17 }, (_, at) => ({
    ...like,
    name: `layers.${at}.dropout.p`,
    group: "Dropout layers",
    last: null,
  }));
  return { knobs: layers, knob_names: [...state.knobs, ...layers].map((each) => each.name) };
}

const port: Port = {
  send: (request) => queueMicrotask(() => answer(request)),
  listen(onMessage) {
    heard.add(onMessage);
    return () => heard.delete(onMessage);
  },
};

// @ts-expect-error built file, present after `npm run build`
const chart = () => import("../../it2nb/notebook/static/chart.mjs") as Promise<unknown>;
const session = new Session({ port, client, chart, control: new Promise<Model>(() => undefined) });
const here = document.getElementById("here");
if (here !== null) session.show(here, new AbortController().signal);
