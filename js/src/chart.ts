/** What we use of plotly.js, typed. */

export interface Trace {
  type: "scatter";
  mode: "lines" | "markers";
  x: readonly number[];
  y: readonly (number | null)[];
  line?: { color: string; width: number; dash?: string; simplify?: boolean };
  marker?: {
    color: string;
    size: number;
    symbol: string;
    line?: { width: number; color?: string };
  };
  opacity?: number;
  yaxis?: "y2";
  text?: readonly string[];
  customdata?: readonly number[];
  hoverinfo?: "skip" | "text" | "x+y";
  hovertemplate?: string;
  connectgaps?: boolean;
  cliponaxis?: boolean;
  showlegend?: boolean;
}

export interface Layout {
  [key: string]: unknown;
}

export interface ChartDiv extends HTMLDivElement {
  on?(event: string, callback: (event: PlotEvent) => void): void;
  removeAllListeners?(event: string): void;
}

export interface PlotEvent {
  points?: { customdata?: unknown }[];
  annotation?: { name?: string };
  [key: string]: unknown;
}

export interface Plotly {
  react(div: ChartDiv, data: Trace[], layout: Layout, config: Layout): Promise<unknown>;
  purge(div: ChartDiv): void;
}

/** Plotly reads a little HTML in its texts: names are escaped, so that text stays text. */
export function plain(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
