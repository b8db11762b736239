/** Numbers as people type and read them; what is shown parses back to the very same double. */

import type { Json, Latest } from "./wire";

/** A number that does not fit the type keeps its `value`: it is asked for as what it is. */
export type Parsed = { ok: true; value: number } | { ok: false; why: string; value?: number };

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** Read a typed number. `"2.5e-6"` is exact; `"0,001"` and `"1e-"` are no numbers. */
export function parseNumber(text: string, dtype: "float" | "int"): Parsed {
  const trimmed = text.trim().replace(/^[−–]/, "-");
  if (!NUMBER.test(trimmed)) return { ok: false, why: "not a number" };
  const value = Number(trimmed);
  if (!Number.isFinite(value)) return { ok: false, why: "too large for a number" };
  if (dtype === "int") {
    if (!Number.isInteger(value)) return { ok: false, why: "not a whole number", value };
    if (!Number.isSafeInteger(value)) return { ok: false, why: "too large to be exact" };
  }
  return { ok: true, value };
}

/** The shortest text that reads back as exactly `value`. */
export function exact(value: number): string {
  if (value === 0 || !Number.isFinite(value)) return Object.is(value, -0) ? "-0" : String(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e7) return String(value);
  return value.toExponential().replace("e+", "e");
}

/** About four digits, for reading along. */
export function brief(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return grouped(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(4)));
  return value
    .toExponential(2)
    .replace(/\.?0+e/, "e")
    .replace("e+", "e");
}

export function latestText(latest: Latest | undefined): string {
  if (latest === undefined) return "–";
  if (latest.value === null) return latest.nonfinite ?? "–";
  return brief(latest.value);
}

/** Whole numbers with a comma at each thousand: steps. */
export function grouped(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** Digits that a reader has a use for: what arithmetic leaves behind the twelfth is noise. */
const READ_DIGITS = 12;

/** Any value in a sentence: 0.3, where arithmetic left 0.30000000000000004. */
export function saidText(value: Json | undefined): string {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return valueText(value);
  return exact(Number(value.toPrecision(READ_DIGITS)));
}

/** Any value on the wire as exact text. */
export function valueText(value: Json | undefined): string {
  if (value === undefined || value === null) return "–";
  if (typeof value === "number") return exact(value);
  // JSON has no word for these: they come as text.
  if (value === "nan" || value === "inf" || value === "-inf") return value;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "boolean") return value ? "on" : "off";
  const text = JSON.stringify(value);
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}

/** Seconds as a clock: `0:06`, `12:40`, `3:07:12`. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const h = Math.floor(whole / 3600);
  const m = Math.floor((whole % 3600) / 60);
  const s = String(whole % 60).padStart(2, "0");
  return h > 0 ? `${h}:${String(m).padStart(2, "0")}:${s}` : `${m}:${s}`;
}

/** Steps a second: three digits are enough. */
export function rate(perSecond: number): string {
  if (perSecond >= 100) return `${grouped(perSecond)} steps/s`;
  if (perSecond >= 1) return `${Number(perSecond.toPrecision(3))} steps/s`;
  return perSecond > 0 ? `${Number((1 / perSecond).toPrecision(3))} s/step` : "";
}
