/** A slider's track: whole ticks on the screen, exact values behind them. Both ends are exact. */

import type { KnobView } from "./wire";

const TICKS = 200;
const MOST_STEPS = 2_000;
/** A log track that starts at 0 has its first decade this far below the top. */
const DEPTH = 1e-6;

export interface Track {
  ticks: number;
  valueAt(tick: number): number;
  tickOf(value: number): number;
}

/** The track of a bounded number; null where there is nothing to slide along. */
export function trackOf(
  view: Pick<KnobView, "dtype" | "min" | "max" | "step" | "scale">,
): Track | null {
  const { min, max } = view;
  if ((view.dtype !== "float" && view.dtype !== "int") || min === null || max === null) return null;
  if (!(max > min) || !Number.isFinite(max - min)) return null;
  const whole = view.dtype === "int";
  if (view.scale === "log" && max > 0 && min >= 0) return logTrack(min, max, whole);
  const step = view.step ?? (whole ? 1 : null);
  if (step !== null && step > 0 && (max - min) / step <= MOST_STEPS) {
    return stepTrack(min, max, step);
  }
  return linearTrack(min, max, whole);
}

function clampTick(tick: number, ticks: number): number {
  return Math.min(ticks, Math.max(0, Math.round(tick)));
}

function stepTrack(min: number, max: number, step: number): Track {
  const ticks = Math.ceil((max - min) / step - 1e-9);
  return {
    ticks,
    valueAt: (tick) =>
      tick <= 0 ? min : tick >= ticks ? max : Number((min + tick * step).toPrecision(12)),
    // The last step may be a short one.
    tickOf: (value) => (value >= max ? ticks : clampTick((value - min) / step, ticks)),
  };
}

function linearTrack(min: number, max: number, whole: boolean): Track {
  const span = max - min;
  // As many digits as a tick is worth, so that the value asked for reads well.
  const digits = Math.max(0, Math.min(100, Math.ceil(-Math.log10(span / TICKS)) + 1));
  const tidy = (value: number) => (whole ? Math.round(value) : Number(value.toFixed(digits)));
  return {
    ticks: TICKS,
    valueAt: (tick) =>
      tick <= 0 ? min : tick >= TICKS ? max : within(tidy(min + (span * tick) / TICKS), min, max),
    tickOf: (value) => clampTick((TICKS * (value - min)) / span, TICKS),
  };
}

function logTrack(min: number, max: number, whole: boolean): Track {
  const zero = min <= 0;
  const low = zero ? (whole ? 1 : max * DEPTH) : min;
  const first = zero ? 1 : 0;
  const decades = Math.log(max / low);
  const tidy = (value: number) => (whole ? Math.round(value) : Number(value.toPrecision(3)));
  return {
    ticks: TICKS,
    valueAt: (tick) => {
      if (tick <= 0) return min;
      if (tick >= TICKS) return max;
      return within(tidy(low * Math.exp((decades * (tick - first)) / (TICKS - first))), min, max);
    },
    tickOf: (value) => {
      if (!(value > 0)) return 0;
      const tick = first + ((TICKS - first) * Math.log(value / low)) / decades;
      return clampTick(Math.max(first, tick), TICKS);
    },
  };
}

function within(value: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, value));
}
