/** The sentences of the panel: what became of a request, in few words. */

import { brief, exact, grouped, saidText, valueText } from "./numbers";
import { type Place, WORDS } from "./place";
import type { Ask } from "./store";
import type { Head, Json, KnobView, LastRequest, Row } from "./wire";

type Status = LastRequest["status"];

export type Tone = "ok" | "clamp" | "no" | "wait";

export interface Said {
  tone: Tone;
  text: string;
  /** The same with all digits, where the text has them not. */
  exact?: string;
}

/** Writes a value into a sentence. */
type Write = (value: Json) => string;

/** A request that the kernel did not confirm for this long waits for a busy cell. */
export const QUIET_MS = 1_000;

export function knobSaid(view: KnobView, ask: Ask | null, context: Context): Said | null {
  const said = (write: Write) => {
    if (ask !== null) return askSaid(ask, context, write);
    return view.last === null ? null : lastSaid(view, view.last, write);
  };
  return withExact(said);
}

/** A sentence for reading, and the exact one where it says more. */
export function withExact<T extends Said | null>(said: (write: Write) => T): T {
  const short = said(saidText);
  const long = said(valueText);
  if (short === null || long === null || long.text === short.text) return short;
  return { ...short, exact: long.text };
}

interface Context {
  now: number;
  place: Place;
}

function askSaid(ask: Ask, context: Context, write: Write): Said {
  const asked = `asked ${write(ask.requested)}`;
  if (ask.received) return { tone: "wait", text: `${asked}, waits for the next step` };
  if (context.now - ask.sentAt < QUIET_MS) return { tone: "wait", text: asked };
  return { tone: "wait", text: `${asked}, ${WORDS[context.place].queuedShort}` };
}

function lastSaid(view: KnobView, last: LastRequest, write: Write): Said {
  const who = last.source === null || last.source === "panel" ? "" : `${last.source} `;
  const asked = `${who}asked ${write(last.requested)}`;
  const from = last.step === null ? "" : `, from step ${grouped(last.step + 1)}`;
  const still = `still ${write(view.value)}`;
  switch (last.status) {
    case "applied":
      return { tone: "ok", text: `${asked}, applied ${write(last.applied)}${from}` };
    case "clamped":
      return {
        tone: "clamp",
        text: `${asked}, applied ${write(last.applied)}${bound(view, last)}${from}`,
      };
    case "rejected":
      return { tone: "no", text: `${asked}, rejected: ${reason(last.reason)}; ${still}` };
    case "failed":
      return { tone: "no", text: `${asked}, failed: ${reason(last.reason)}; ${still}` };
    case "expired":
    case "cancelled":
      return { tone: "no", text: `${asked}, ${last.status}; ${still}` };
    case "pending":
      return { tone: "wait", text: `${asked}, waits for the next step` };
    case "waiting":
      return { tone: "wait", text: `${asked}, waits for approval` };
  }
}

function bound(view: KnobView, last: LastRequest): string {
  if (last.applied !== null && last.applied === view.max) return " (max)";
  if (last.applied !== null && last.applied === view.min) return " (min)";
  return last.reason === null ? "" : ` (${last.reason})`;
}

/** Why, without the asked value, which stands before it already. */
function reason(text: string | null): string {
  if (text === null || text === "") return "no reason was given";
  return text.replace(/^(['"]).*?\1 is (?=not )/, "");
}

/** The tooltip of a knob: description, bounds, unit, aliases. */
export function knobTitle(view: KnobView): string {
  const parts = [view.description || view.name];
  if (view.min !== null || view.max !== null) {
    const low = view.min === null ? "-∞" : exact(view.min);
    const high = view.max === null ? "∞" : exact(view.max);
    parts.push(`${low} to ${high}${view.unit ? ` ${view.unit}` : ""}`);
  } else if (view.unit) parts.push(`in ${view.unit}`);
  if (view.out_of_bounds === "reject") parts.push("values outside are rejected");
  if (view.aliases.length > 0) parts.push(`also: ${view.aliases.join(", ")}`);
  if (!view.enabled) parts.push(view.reason ?? "not available");
  if (view.locked) parts.push("locked");
  return parts.join("\n");
}

/** What was asked for, in a row of the journal. */
export function rowRequest(row: Row, write: Write = saidText): string {
  if (row.type !== "action_result" && row.type !== "action_submitted") {
    return row.name === null ? row.type : `${row.type} ${row.name}`;
  }
  const action = row.action ?? row.type;
  if (row.name === null || action !== "set_knob") {
    return [action, row.name, row.requested === null ? null : plain(row.requested)]
      .filter((each) => each !== null)
      .join(" ");
  }
  // What was there is for reading along.
  const before = row.before === null ? "" : `${shortText(row.before, write)} `;
  return `${row.name} ${before}→ ${write(row.requested)}`;
}

/** What there is to add to a row. */
export function rowRemark(row: Row, write: Write = saidText): string {
  const parts: string[] = [];
  if (row.status === "clamped" && row.after !== null) parts.push(`applied ${write(row.after)}`);
  if (row.reason) parts.push(row.reason);
  if (row.text && row.text !== row.reason) parts.push(row.text);
  if (!row.durable) parts.push("not on disk");
  return parts.join("; ");
}

/** Characters of a remark that stand in a line; the tooltip has them all. */
const MOST_REMARK = 240;

/** The beginning of a text, up to a word. */
export function shortened(text: string, most = MOST_REMARK): string {
  if (text.length <= most) return text;
  const space = text.lastIndexOf(" ", most - 1);
  return `${text.slice(0, space > most / 2 ? space : most - 1)}…`;
}

/** A row with all digits of its numbers and all words, where it is shown with fewer. */
export function rowExact(row: Row): string | null {
  const said = (write: Write, cut: (text: string) => string) =>
    `${rowRequest(row, write)} ${cut(rowRemark(row, write))}`.trim();
  const full = said(valueText, (text) => text);
  return said(saidText, shortened) === full ? null : full;
}

function shortText(value: Json, write: Write): string {
  return typeof value === "number" && write === saidText ? brief(value) : write(value);
}

function plain(value: Json): string {
  return typeof value === "string" ? value : valueText(value);
}

/** The result of an action, for the line under the buttons. */
export function actionSaid(row: Row): Said {
  const from = `, step ${grouped(row.step)}`;
  const action = (row.action ?? row.type).replaceAll("_", " ");
  const said = (remark: string) =>
    `${action}: ${row.status ?? ""}${remark ? `, ${remark}` : ""}${from}`;
  const remark = rowRemark(row);
  const text = said(shortened(remark));
  const tone = toneOf(row.status);
  return text === said(remark) ? { tone, text } : { tone, text, exact: said(remark) };
}

/** How a status looks. */
export function toneOf(status: Status | null): Tone {
  if (status === "applied") return "ok";
  if (status === "clamped") return "clamp";
  return status === "pending" || status === "waiting" ? "wait" : "no";
}

/** The same request in Python, for when the panel can't reach the kernel. */
export function pythonFor(
  variable: string,
  ask: { type: string; name: string | null; requested: Json },
): string {
  if (ask.type === "set_knob" && ask.name !== null) {
    return `${variable}.set(${JSON.stringify(ask.name)}, ${pythonValue(ask.requested)})`;
  }
  return `${variable}.do(${JSON.stringify(ask.type)})`;
}

/** The same request as a line magic. */
export function magicFor(ask: { type: string; name: string | null; requested: Json }): string {
  if (ask.type === "set_knob" && ask.name !== null) {
    const value =
      typeof ask.requested === "number" ? exact(ask.requested) : valueText(ask.requested);
    return `%it2 set ${ask.name} ${value}`;
  }
  return `%it2 do ${ask.type}`;
}

export function pythonValue(value: Json): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return exact(value);
  return JSON.stringify(value);
}

/** A round as people count them: the baseline, round 0 in Python, is the first. */
export function roundName(round: number): string {
  return `round ${round + 1}`;
}

/** Which round of how many runs; nothing where there is one only. */
export function roundText({ round, max_rounds }: Pick<Head, "round" | "max_rounds">): string {
  if (!hasRounds({ round, max_rounds })) return "";
  const of = max_rounds === null || max_rounds <= round ? "" : ` of ${max_rounds}`;
  return `${roundName(round)}${of}`;
}

export function hasRounds({ round, max_rounds }: Pick<Head, "round" | "max_rounds">): boolean {
  return round > 0 || (max_rounds ?? 1) > 1;
}

export function metricText(name: string, value: number): string {
  return `${name} ${brief(value)}`;
}
