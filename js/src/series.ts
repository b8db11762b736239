/** The points of the watched curves, bounded: extremes survive, whatever is left out. */

import type { Curve } from "./wire";

/** A line is thinned when it has more points than this. */
export const CAP = 4_000;
/** Stretches of equal width that a thinned line is made of; each keeps its extremes. */
export const BUCKETS = 1_000;
/** Lines of a metric: as many as a snapshot brings (LINES in panel/curves.py). */
export const LINES = 24;

export interface Line {
  branch: number;
  round: number;
  steps: number[];
  times: number[];
  values: number[];
  /** How often points that were there have been left out since: what was made of them is stale. */
  thinned: number;
}

export class Series {
  #lines = new Map<string, Line[]>();

  /** All lines of a metric, oldest first. */
  lines(name: string): readonly Line[] {
    return this.#lines.get(name) ?? [];
  }

  clear(): void {
    this.#lines.clear();
  }

  /** Forget metrics that are no longer shown. */
  keep(names: readonly string[]): void {
    for (const name of [...this.#lines.keys()]) if (!names.includes(name)) this.#lines.delete(name);
  }

  append(curve: Curve, data: Float64Array): void {
    let lines = this.#lines.get(curve.name);
    if (lines === undefined) {
      lines = [];
      this.#lines.set(curve.name, lines);
    }
    let line = lines.find((each) => each.branch === curve.branch_id && each.round === curve.round);
    if (line === undefined) {
      line = newLine(curve);
      lines.push(line);
      if (lines.length > LINES) lines.shift();
    }
    addPoints(line, curve, data);
    if (line.steps.length > CAP) thin(line, BUCKETS);
  }
}

/** A curve of one message as a line of its own. */
export function lineOf(curve: Curve, data: Float64Array): Line {
  const line = newLine(curve);
  addPoints(line, curve, data);
  return line;
}

function newLine({ branch_id: branch, round }: Curve): Line {
  return { branch, round, steps: [], times: [], values: [], thinned: 0 };
}

/** Points that a line has already, told by their time, are left out: a snapshot may overlap. */
function addPoints(line: Line, { at, count }: Curve, data: Float64Array): void {
  const lastTime = line.times.at(-1) ?? Number.NEGATIVE_INFINITY;
  const lastStep = line.steps.at(-1) ?? Number.NEGATIVE_INFINITY;
  for (let i = 0; i < count; i++) {
    const step = data[at + i] as number;
    const time = data[at + count + i] as number;
    if (time < lastTime || (time === lastTime && step <= lastStep)) continue;
    line.steps.push(step);
    line.times.push(time);
    line.values.push(data[at + 2 * count + i] as number);
  }
}

/**
 * Leave points out in place. Stretches are equally wide in steps, so that the old part of a
 * line, thinned before, doesn't grow thinner with each round.
 */
export function thin(line: Line, buckets: number): void {
  const { steps, values } = line;
  const count = steps.length;
  const first = steps[0] as number;
  const width = ((steps[count - 1] as number) - first) / buckets || 1;
  const keep: number[] = [0];
  let start = 1;
  while (start < count - 1) {
    const bucket = Math.floor(((steps[start] as number) - first) / width);
    let low = -1;
    let high = -1;
    let hole = -1;
    let end = start;
    for (; end < count - 1; end++) {
      if (Math.floor(((steps[end] as number) - first) / width) !== bucket) break;
      const value = values[end] as number;
      if (!Number.isFinite(value)) {
        if (hole < 0) hole = end;
        continue;
      }
      if (low < 0 || value < (values[low] as number)) low = end;
      if (high < 0 || value > (values[high] as number)) high = end;
    }
    const chosen = [...new Set([low, high, hole])].filter((index) => index >= 0);
    keep.push(...chosen.sort((a, b) => a - b));
    start = end;
  }
  if (count > 1) keep.push(count - 1);
  for (const column of [line.steps, line.times, line.values]) {
    keep.forEach((index, at) => {
      column[at] = column[index] as number;
    });
    column.length = keep.length;
  }
  line.thinned += 1;
}

/**
 * Exponential moving average over steps, bias-corrected as in Kingma & Ba (2015), Algorithm 1.
 * A point that is no number stays a hole and does not spread. It grows with its line: only points
 * that are new are averaged.
 */
export class Smoothed {
  #values: (number | null)[] = [];
  #factor = Number.NaN;
  #thinned = -1;
  #sum = 0;
  #weight = 0;
  #last: number | null = null;

  /** The average at each point of the line: one array, which the next call may add to. */
  of({ steps, values, thinned }: Line, factor: number): readonly (number | null)[] {
    if (factor !== this.#factor || thinned !== this.#thinned) {
      this.#values = [];
      this.#factor = factor;
      this.#thinned = thinned;
      this.#sum = this.#weight = 0;
      this.#last = null;
    }
    for (let i = this.#values.length; i < values.length; i++) {
      this.#values.push(this.#next(steps[i] as number, values[i] as number, factor));
    }
    return this.#values;
  }

  #next(step: number, value: number, factor: number): number | null {
    if (!Number.isFinite(value)) return null;
    // Points that were left out count as many times as they were.
    const keep = factor ** Math.max(1, this.#last === null ? 1 : step - this.#last);
    this.#sum = keep * this.#sum + (1 - keep) * value;
    this.#weight = keep * this.#weight + (1 - keep);
    this.#last = step;
    return this.#sum / this.#weight;
  }
}

const smoothed = new WeakMap<Line, Smoothed>();

export function smooth(line: Line, factor: number): readonly (number | null)[] {
  let known = smoothed.get(line);
  if (known === undefined) {
    known = new Smoothed();
    smoothed.set(line, known);
  }
  return known.of(line, factor);
}
