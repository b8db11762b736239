/**
 * The lines of a plot between two drawings by Plotly: as long as new points lie inside its axes,
 * only the path of a line has to grow. A drawing by Plotly costs ten times as much, most of it
 * for axes that look the same afterwards.
 */

/** Ends of both axes; on a log axis those of the values' logarithms, as Plotly has it. */
export type Range = readonly [number, number];

export interface Frame {
  x: [number, number];
  y: [number, number];
  log: boolean;
}

/** Room that Plotly leaves around the plot, pixels. */
export const MARGIN = { l: 46, r: 8, t: 14, b: 20 };
/** Room ahead of a curve's end and above and below it, as a share of what is there. */
const AHEAD = 0.06;
const MOST_AHEAD = 1;
const AROUND = 0.07;

interface Columns {
  x: readonly number[];
  y: readonly (number | null)[];
}

/**
 * The x axis of curves with these ends, with room for what comes: `growth` is what they gain until
 * the next drawing, in units of the axis; null when they are over.
 */
export function rangeOf([first, last]: Range, growth: number | null): Range {
  if (first > last) return rangeOf([0, 1], growth);
  const end = first === last ? first + 1 : last;
  return [first, end + ahead(end - first, growth)];
}

/** Axes around these columns, along this stretch of the x axis. */
export function frameOf(columns: readonly Columns[], log: boolean, range: Range): Frame {
  let [y0, y1] = [Infinity, -Infinity];
  for (const { y } of columns) {
    for (const each of y) {
      const value = level(each, log);
      if (value === null) continue;
      if (value < y0) y0 = value;
      if (value > y1) y1 = value;
    }
  }
  if (y0 > y1) [y0, y1] = log ? [-1, 0] : [0, 1];
  // Half of each first: the distance of two huge values may be infinite.
  const pad = AROUND * (y1 / 2 - y0 / 2) * 2 || Math.abs(y0) * 0.1 || 0.5;
  return {
    x: [...range],
    y: [finite(y0 - pad), finite(y1 + pad)],
    log,
  };
}

function ahead(span: number, growth: number | null): number {
  return growth === null ? 0 : Math.min(MOST_AHEAD * span, Math.max(AHEAD * span, growth));
}

/** Whether the values of these columns lie inside of the y axis. */
export function fits(columns: readonly Columns[], frame: Frame, from: number): boolean {
  for (const { y } of columns) {
    // What was inside before is inside now: only the end is new.
    for (let i = Math.max(0, y.length - from); i < y.length; i++) {
      const value = level(y[i] ?? null, frame.log);
      if (value !== null && (value < frame.y[0] || value > frame.y[1])) return false;
    }
  }
  return true;
}

/**
 * The SVG path of a line, in pixels of a plot of this size. Of all points in one column of pixels
 * the first, the lowest, the highest and the last are drawn, which looks the same.
 */
export function pathOf({ x, y }: Columns, frame: Frame, width: number, height: number): string {
  const [x0, x1] = frame.x;
  const [y0, y1] = frame.y;
  const kx = width / (x1 - x0);
  const ky = height / (y1 / 2 - y0 / 2) / 2;
  let path = "";
  let pen = "M";
  let column = Number.NaN;
  let [first, low, high, last] = [0, 0, 0, 0];
  const put = (py: number) => {
    path += `${pen}${column},${Math.round(py * 10) / 10}`;
    pen = "L";
  };
  const flush = () => {
    if (Number.isNaN(column)) return;
    put(first);
    if (low !== first && low !== last) put(low);
    if (high !== first && high !== last) put(high);
    if (last !== first) put(last);
    column = Number.NaN;
  };
  for (let i = 0; i < x.length; i++) {
    const value = level(y[i] ?? null, frame.log);
    if (value === null) {
      flush();
      pen = "M";
      continue;
    }
    const px = Math.round(((x[i] as number) - x0) * kx);
    const py = (y1 - value) * ky;
    if (px !== column) {
      flush();
      column = px;
      first = low = high = py;
    }
    last = py;
    if (py < low) low = py;
    if (py > high) high = py;
  }
  flush();
  return path || "M0,0";
}

function level(value: number | null, log: boolean): number | null {
  if (value === null || !Number.isFinite(value)) return null;
  if (!log) return value;
  return value > 0 ? Math.log10(value) : null;
}

function finite(value: number): number {
  return Number.isFinite(value) ? value : Math.sign(value) * Number.MAX_VALUE;
}
