/** A metric's lines as a Plotly figure: pure, so that it can be tested without a chart. */

import { type Layout, plain, type Trace } from "./chart";
import { type Stretch, stretchesOf } from "./lineage";
import { type Line, smooth } from "./series";
import { isOver, type Store } from "./store";
import { type Frame, frameOf, MARGIN, type Range, rangeOf } from "./strokes";
import type { Mark } from "./wire";
import { hasRounds, roundName } from "./words";

export interface Look {
  log: boolean;
  axis: "step" | "time";
  /** 0 is off. */
  smooth: number;
  zoom: [number, number] | null;
  /** Seq of the journal row that is pointed out. */
  selected: number | null;
}

export interface Colors {
  line: string;
  faint: string;
  grid: string;
  text: string;
  bad: string;
  surface: string;
  font: string;
}

/** Marks in view, at most: more would be a wall. */
const MOST_LINES = 60;
/** About the width of a character of a label. */
const CHARACTER_PX = 5.6;
const MOST_CHARACTERS = 18;
/** Lines this close look like one. */
const SAME_PX = 2;

/** JupyterLab's colours as the browser resolves them: Plotly knows no CSS variables. */
export function readColors(element: Element): Colors {
  const style = getComputedStyle(element);
  const probe = document.createElement("span");
  probe.style.display = "none";
  element.append(probe);
  const color = (name: string) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color || "#888";
  };
  const colors = {
    line: color("--it2-brand"),
    faint: color("--it2-ink3"),
    grid: color("--it2-line3"),
    text: color("--it2-ink2"),
    bad: color("--it2-no"),
    surface: color("--it2-surface"),
    font: style.fontFamily,
  };
  probe.remove();
  return colors;
}

export interface Figure {
  /** The lines first, in the order in which Plotly draws them. */
  data: Trace[];
  /** How many of these are lines. */
  strokes: number;
  layout: Layout;
  config: Layout;
  frame: Frame;
}

/** What is drawn as lines, the cheap part: it is renewed more often than the rest. */
export function strokesOf(
  lines: readonly Line[],
  store: Pick<Store, "head" | "branches">,
  look: Look,
  colors: Colors,
): Trace[] {
  return stretchesOf(lines, store).flatMap((stretch) => {
    const { line } = stretch;
    const newest = line.branch === store.head.branch_id && line.round === store.head.round;
    return tracesOf(stretch, newest ? "" : lineName(line, lines), look, colors);
  });
}

/** What tells a line from the others: its round where there are several, and so for its branch. */
export function lineName(line: Line, lines: readonly Line[]): string {
  const parts: string[] = [];
  if (lines.some((each) => each.round !== line.round)) parts.push(roundName(line.round));
  if (lines.some((each) => each.round === line.round && each.branch !== line.branch)) {
    parts.push(`branch ${line.branch}`);
  }
  return parts.join(", ");
}

export function figureOf(
  lines: readonly Line[],
  store: Pick<Store, "head" | "branches" | "marks">,
  look: Look,
  colors: Colors,
  width: number,
  range = rangeOfAll([lines], store, look),
): Figure {
  const data = strokesOf(lines, store, look, colors);
  const strokes = data.length;
  const frame = frameOf(data, look.log, range);
  const odd: { x: number[]; y: number[]; text: string[] } = { x: [], y: [], text: [] };
  for (const line of lines) collectOdd(line, look, odd);
  if (odd.x.length > 0) {
    data.push({
      type: "scatter",
      mode: "markers",
      ...odd,
      marker: {
        color: colors.bad,
        size: 7,
        symbol: "x-thin",
        line: { width: 2, color: colors.bad },
      },
      hoverinfo: "text",
      cliponaxis: false,
      showlegend: false,
    });
  }
  const marks = marksIn(store, look);
  if (marks.length > 0) data.push(markTrace(marks, hasRounds(store.head), look, colors));
  const layout = layoutOf(marks, frame, look, colors, width);
  return { data, strokes, layout, config: CONFIG, frame };
}

/** The x axis of plots that stand together, with room for what comes in this time. */
export function rangeOfAll(
  plots: readonly (readonly Line[])[],
  store: Pick<Store, "head">,
  look: Look,
  restMs = 0,
): Range {
  if (look.zoom !== null) return look.zoom;
  return rangeOf(endsOf(plots, look), growthOf(store, look, restMs));
}

/** Where the lines of these plots begin and end; the wrong way round where there are none. */
export function endsOf(plots: readonly (readonly Line[])[], look: Look): [number, number] {
  let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const line of plots.flat()) {
    const x = look.axis === "step" ? line.steps : line.times;
    first = Math.min(first, x[0] ?? first);
    last = Math.max(last, x.at(-1) ?? last);
  }
  return [first, last];
}

/** What a curve gains in this time, on the x axis; null when the run is over. */
function growthOf(store: Pick<Store, "head">, look: Look, restMs: number): number | null {
  if (isOver(store)) return null;
  return (restMs / 1_000) * rateOf(store, look);
}

/** How fast a curve gets longer, on the x axis, in a second. */
export function rateOf({ head }: Pick<Store, "head">, look: Look): number {
  if (head.status !== "running") return 0;
  return look.axis === "step" ? (head.steps_per_s ?? 0) : 1;
}

function tracesOf(stretch: Stretch, name: string, look: Look, colors: Colors): Trace[] {
  const { line, live, from, to } = stretch;
  const along = look.axis === "step" ? line.steps : line.times;
  const x = from === 0 && to === along.length ? along : along.slice(from, to);
  const values = line.values.slice(from, to);
  const y = values.map((value) => (Number.isFinite(value) ? value : null));
  const color = live ? colors.line : colors.faint;
  const which = name ? ` · ${name}` : "";
  const unit = look.axis === "step" ? "step %{x:,d}" : "%{x:.1f} s";
  const base: Trace = {
    type: "scatter",
    mode: "lines",
    x,
    y,
    line: { color, width: 1.5, simplify: true },
    hovertemplate: `%{y:.5~g}<br>${unit}${which}<extra></extra>`,
    connectgaps: false,
    showlegend: false,
  };
  // A single point has no line to draw.
  if (x.length === 1) {
    return [{ ...base, mode: "markers", marker: { color, size: 5, symbol: "circle" } }];
  }
  const shade = live ? 1 : 0.55;
  if (look.smooth === 0) return [{ ...base, opacity: shade }];
  // Plotly knows by the array whether there is something new in it.
  const averaged = smooth(line, look.smooth).slice(from, to);
  return [
    { ...base, opacity: 0.28 * shade, line: { color, width: 1, simplify: true } },
    {
      ...base,
      y: averaged,
      opacity: shade,
      line: { color, width: 1.8, simplify: true },
      hoverinfo: "skip",
    },
  ].map((trace, at) => {
    if (at === 0) return trace as Trace;
    const { hovertemplate: _, ...quiet } = trace as Trace;
    return quiet;
  });
}

/** What is no number is a hole in the line, and a cross where it happened. */
function collectOdd(
  line: Line,
  look: Look,
  odd: { x: number[]; y: number[]; text: string[] },
): void {
  const x = look.axis === "step" ? line.steps : line.times;
  let near = line.values.find((value) => Number.isFinite(value)) ?? (look.log ? 1 : 0);
  line.values.forEach((value, i) => {
    if (Number.isFinite(value)) {
      near = value;
      return;
    }
    // A run that went wrong for good has thousands: the first of each stretch tells.
    const before = line.values[i - 1];
    if (before !== undefined && !Number.isFinite(before)) return;
    odd.x.push(x[i] as number);
    odd.y.push(near);
    const kind = Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
    odd.text.push(`${kind} from step ${line.steps[i]}`);
  });
}

export function marksIn(store: Pick<Store, "marks">, look: Look): Mark[] {
  const { zoom } = look;
  const at = (mark: Mark) => (look.axis === "step" ? mark.step : mark.t);
  const seen =
    zoom === null ? store.marks : store.marks.filter((m) => at(m) >= zoom[0] && at(m) <= zoom[1]);
  const last = seen.slice(-MOST_LINES);
  const chosen = seen.find((mark) => mark.seq === look.selected);
  return chosen === undefined || last.includes(chosen) ? last : [chosen, ...last.slice(1)];
}

function markTrace(marks: readonly Mark[], rounds: boolean, look: Look, colors: Colors): Trace {
  const where = (mark: Mark) => (rounds ? `${roundName(mark.round)}, step` : "step");
  return {
    type: "scatter",
    mode: "markers",
    x: marks.map((mark) => (look.axis === "step" ? mark.step : mark.t)),
    y: marks.map(() => 1),
    yaxis: "y2",
    text: marks.map((mark) => `${plain(mark.label)}<br>${where(mark)} ${mark.step}`),
    customdata: marks.map((mark) => mark.seq),
    marker: { color: colors.text, size: 7, symbol: "triangle-down", line: { width: 0 } },
    hoverinfo: "text",
    cliponaxis: false,
    showlegend: false,
  };
}

function layoutOf(
  marks: readonly Mark[],
  frame: Frame,
  look: Look,
  colors: Colors,
  width: number,
): Layout {
  const x = (mark: Mark) => (look.axis === "step" ? mark.step : mark.t);
  const axis = {
    gridcolor: colors.grid,
    linecolor: colors.grid,
    zeroline: false,
    tickfont: { size: 10, color: colors.text },
    fixedrange: false,
    automargin: false,
    // Known beforehand, so that Plotly neither tries the data for dates nor measures each label.
    type: "linear",
    tickangle: 0,
    ticklabeloverflow: "allow",
  };
  return {
    autosize: true,
    margin: MARGIN,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colors.font, size: 11, color: colors.text },
    showlegend: false,
    hovermode: "x",
    hoverdistance: 12,
    hoverlabel: {
      bgcolor: colors.surface,
      bordercolor: colors.grid,
      font: { size: 11, color: colors.text, family: colors.font },
      align: "left",
    },
    dragmode: "zoom",
    xaxis: {
      ...axis,
      range: [...frame.x],
      autorange: false,
      // A label that is cut off at the edge reads as another number.
      ticklabeloverflow: "hide past div",
      nticks: Math.max(3, Math.floor(width / 90)),
      tickformat: look.axis === "step" ? ",~r" : "~r",
      ticksuffix: look.axis === "step" ? "" : " s",
    },
    yaxis: {
      ...axis,
      range: [...frame.y],
      autorange: false,
      type: look.log ? "log" : "linear",
      fixedrange: true,
      nticks: 5,
      exponentformat: "e",
      tickformat: look.log ? "~g" : "",
    },
    yaxis2: { type: "linear", overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    shapes: marks.map((mark) => {
      const chosen = mark.seq === look.selected;
      return {
        type: "line",
        xref: "x",
        yref: "paper",
        x0: x(mark),
        x1: x(mark),
        y0: 0,
        y1: 1,
        layer: "below",
        line: {
          color: chosen ? colors.line : mark.kind === "guard" ? colors.bad : colors.faint,
          width: chosen ? 2 : 1,
          dash: chosen ? "solid" : mark.kind === "change" ? "dot" : "dash",
        },
      };
    }),
    annotations: labelled(marks, frame, look, width).map(({ mark, left }) => ({
      name: String(mark.seq),
      x: x(mark),
      y: 1,
      xref: "x",
      yref: "paper",
      text: plain(short(mark.label)),
      showarrow: false,
      xanchor: left ? "right" : "left",
      yanchor: "bottom",
      xshift: left ? -3 : 3,
      yshift: -3,
      font: {
        size: 10,
        color: mark.seq === look.selected ? colors.line : colors.text,
      },
      captureevents: true,
    })),
  };
}

interface Label {
  mark: Mark;
  /** Whether it stands left of its line, for want of room on the right. */
  left: boolean;
}

/** The marks whose labels have room, the chosen and then the newest one first. */
function labelled(marks: readonly Mark[], frame: Frame, look: Look, width: number): Label[] {
  const [low, high] = frame.x;
  const inner = Math.max(1, width - MARGIN.l - MARGIN.r);
  const px = (mark: Mark) =>
    ((look.axis === "step" ? mark.step : mark.t) - low) * (inner / Math.max(1e-9, high - low));
  const taken: [number, number][] = [];
  const lines = marks.map(px);
  const order = [...marks].reverse().sort((a, b) => rank(b, look) - rank(a, look));
  return order.flatMap((mark) => {
    const at = px(mark);
    const wide = 8 + short(mark.label).length * CHARACTER_PX;
    if (at < -1 || at > inner + 1) return [];
    for (const left of [false, true]) {
      const from = left ? at - wide : at;
      const to = from + wide;
      if (from < -40 || to > inner + 8) continue;
      if (taken.some(([low, high]) => from < high && to > low)) continue;
      // Over the line of another mark it would be read as that one's; the chosen one has a colour.
      const crosses = lines.some(
        (each) => Math.abs(each - at) > SAME_PX && each > from && each < to,
      );
      if (crosses && mark.seq !== look.selected) continue;
      taken.push([from, to]);
      return [{ mark, left }];
    }
    return [];
  });
}

function rank(mark: Mark, look: Look): number {
  return mark.seq === look.selected ? 1 : 0;
}

/** A long name gives way to its value: a part of a number would be another number. */
export function short(label: string): string {
  if (label.length <= MOST_CHARACTERS) return label;
  const [, name, value] = /^(\S*[^\s,]) (\S+)$/.exec(label) ?? [];
  const room = MOST_CHARACTERS - 2 - (value ?? "").length;
  if (name === undefined || (room < 3 && Number.isNaN(Number(value)))) {
    return `${label.slice(0, MOST_CHARACTERS - 1)}…`;
  }
  return `${name.slice(0, Math.max(1, room))}… ${value}`;
}

const CONFIG: Layout = {
  displayModeBar: false,
  responsive: false,
  doubleClick: "reset",
  showTips: false,
  scrollZoom: false,
};
