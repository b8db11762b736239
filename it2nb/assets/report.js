"use strict";
// Everything in the data is somebody else's text: it only ever becomes textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const $ = (id) => document.getElementById(id);
  const BACK = new Set(["undo", "goto", "load_checkpoint"]);
  const UNMARKED = new Set(["pause", "resume", "note", "evaluate", "save_checkpoint", "list_checkpoints"]);

  const make = (tag, attributes = {}, ...children) => {
    const node = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value != null) node.setAttribute(name, value);
    for (const child of children) if (child != null) node.append(child);
    return node;
  };
  const number = (value) => {
    if (typeof value !== "number") return value == null ? "" : String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e7) return value.toLocaleString("en-US");
    const size = Math.abs(value);
    const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : value.toPrecision(5);
    return text.replace(/\.?0+(e|$)/, "$1");
  };
  const clock = (seconds) => {
    const whole = Math.max(0, seconds);
    if (whole < 60) return `${whole.toFixed(whole < 10 ? 2 : 1)} s`;
    const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = Math.floor(whole % 60);
    return (h ? `${h}:${String(m).padStart(2, "0")}` : `${m}`) + `:${String(s).padStart(2, "0")}`;
  };
  const said = (row) => {
    if (row.type === "set_knob" || row.type === "set_mode") {
      const asked = row.requested !== undefined && number(row.requested) !== number(row.after) ? ` (asked ${number(row.requested)})` : "";
      return `${row.name ?? "?"} ${number(row.before)} → ${number(row.after)}${asked}`;
    }
    if (row.type === "knob_drifted" && row.name) return `${row.name} ${number(row.before)} → ${number(row.after)}, written by ${row.by}, not asked`;
    return row.type + (row.name ? ` ${row.name}` : "");
  };
  // People count the baseline, round 0 of the journal, as the first one.
  const severalRounds = data.rounds > 1 || data.round > 0;
  const roundName = (round) => `round ${number(round + 1)}`;
  const ok = (row) => row.status === "applied" || row.status === "clamped";

  // --- time: seconds of the run, from the first row to the last ------------------------------
  const times = [...data.requests, ...data.rows].map((row) => row.t);
  for (const curve of data.curves) if (curve.t.length) times.push(curve.t[0], curve.t[curve.t.length - 1]);
  const first = times.reduce((a, b) => Math.min(a, b), Infinity), last = times.reduce((a, b) => Math.max(a, b), -Infinity);
  const start = Number.isFinite(first) ? first : 0, end = Number.isFinite(last) ? Math.max(last, start + 1e-6) : 1;
  // What something else wrote into a knob is a change of the run like those that were asked for.
  const drifts = data.rows.filter((row) => row.type === "knob_drifted" && row.name);
  const marks = [...data.requests.filter((row) => ok(row) && !UNMARKED.has(row.type)), ...drifts].sort((a, b) => a.seq - b.seq);
  const allSteps = data.curves.flatMap((curve) => (curve.step.length ? [curve.step[0], curve.step[curve.step.length - 1]] : []));
  const MIN = allSteps.reduce((a, b) => Math.min(a, b), Infinity), MAX = allSteps.reduce((a, b) => Math.max(a, b), -Infinity);
  const state = { t: end, log: false, smooth: true, chosen: null, playing: false, pace: 1, shown: new Set() };

  // --- head -------------------------------------------------------------------------------------
  const name = data.title || data.run;
  document.title = `${name}: it2nb report`;
  const themes = ["auto", "light", "dark"];
  const theme = make("button", { type: "button", "aria-label": "Theme: auto" }, "theme: auto");
  theme.addEventListener("click", () => {
    const now = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3];
    if (now === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = now;
    theme.textContent = `theme: ${now}`;
    theme.setAttribute("aria-label", `Theme: ${now}`);
  });
  $("head").append(...[
    make("h1", {}, name),
    make("span", { class: `pill ${/^\w+$/.test(data.status) ? data.status : ""}` }, data.status),
    severalRounds ? make("span", {}, `${roundName(data.round)} of ${number(Math.max(data.rounds, data.round + 1))}`) : null,
    make("span", {}, `step ${number(data.step)}`),
    make("span", { class: "dim" }, clock(end - start)),
    make("span", { class: "dim" }, `${data.requests.length.toLocaleString("en-US")} requests${drifts.length ? `, ${drifts.length} written by something else` : ""}`),
    data.title ? make("span", { class: "faint mono" }, data.run) : null,
    make("span", { class: "spacer" }), theme,
  ].filter(Boolean));

  // --- knobs ------------------------------------------------------------------------------------
  const valueAt = (knob, t) => {
    let found;
    for (const [when, value, by] of knob.values) { if (when <= t || found === undefined) found = [when, value, by]; else break; }
    return found ?? [0, null];
  };
  const knobRows = [];
  const drawKnobs = () => {
    if (!knobRows.length) {
      const groups = new Map();
      for (const knob of data.knobs) {
        const key = knob.group || "knobs";
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(knob);
      }
      $("knobs").append(make("h2", {}, "Knobs"));
      if (!data.knobs.length) $("knobs").append(make("p", { class: "dim" }, "None was registered."));
      for (const [key, knobs] of groups) {
        if (/, one group$/.test(key)) continue;
        const body = make("tbody");
        for (const knob of knobs) {
          const value = make("td", { class: "mono" });
          const row = make("tr", { class: knob.values.length > 1 ? "moved" : "still" }, make("td", {}, knob.name), value);
          knobRows.push([knob, row, value]);
          body.append(row);
        }
        $("knobs").append(make("h3", {}, key), make("table", {}, body));
      }
    }
    for (const [knob, row, cell] of knobRows) {
      const [when, value, by] = valueAt(knob, state.t);
      cell.textContent = number(value) + (by ? `, written by ${by}` : "");
      row.classList.toggle("fresh", knob.values.length > 1 && when > start && state.t - when < (end - start) / 40 && when <= state.t);
    }
  };

  // --- curves -----------------------------------------------------------------------------------
  const W = 1000, H = 180, L = 56, R = 6, T = 16, B = 18;
  const metrics = [...new Set(data.curves.map((curve) => curve.name))];
  metrics.slice(0, 6).forEach((each) => state.shown.add(each));
  const trials = new Set(data.trials);
  const plots = new Map();
  const y = (value) => (state.log ? Math.log10(value) : value);
  const usable = (value) => typeof value === "number" && Number.isFinite(value) && (!state.log || value > 0);
  const smoothed = (values) => {
    let mean = null;
    return values.map((value) => (usable(value) ? (mean = mean === null ? value : 0.9 * mean + 0.1 * value) : value));
  };

  class Plot {
    constructor(metric) {
      this.metric = metric;
      this.curves = data.curves.filter((curve) => curve.name === metric);
      this.value = make("span", { class: "mono" });
      this.svg = make("svg:svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": `${metric} over steps` });
      this.texts = make("svg:g");
      this.node = make("div", { class: "plot" }, make("div", { class: "top" }, make("b", {}, metric), this.value), this.svg);
      this.svg.addEventListener("pointermove", (event) => this.hover(event));
      this.svg.addEventListener("pointerleave", () => { this.line?.setAttribute("visibility", "hidden"); this.tell(); });
      this.rebuild();
    }
    rebuild() {
      const values = this.curves.flatMap((curve) => curve.value.filter(usable).map(y));
      const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      this.low = Number.isFinite(low) ? low : 0;
      this.high = Number.isFinite(high) ? high : 1;
      if (this.low === this.high) { this.low -= 0.5; this.high += 0.5; }
      // The same steps below each other in all plots.
      this.min = MIN;
      this.max = MAX > MIN ? MAX : MIN + 1;
      this.draw();
    }
    // Its round where there are several, and its branch where that round has several.
    lineName(curve) {
      const branches = this.curves.some((each) => each.round === curve.round && each.branch !== curve.branch);
      return [severalRounds ? roundName(curve.round) : null, branches ? `branch ${curve.branch}` : null].filter(Boolean).join(", ");
    }
    x(step) { return L + ((step - this.min) / (this.max - this.min)) * (this.width - L - R); }
    y(value) { return T + ((this.high - y(value)) / (this.high - this.low)) * (H - T - B); }
    draw() {
      // In real pixels, so that texts are not stretched.
      this.width = Math.max(260, this.svg.clientWidth || W);
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${H}`);
      const parts = [];
      for (const share of [0, 0.5, 1]) {
        const at = T + share * (H - T - B), level = this.high + share * (this.low - this.high);
        parts.push(make("svg:path", { class: "grid", d: `M${L} ${at}H${this.width - R}` }));
        parts.push(make("svg:text", { x: L - 6, y: at + 3.5, "text-anchor": "end" }, number(Number((state.log ? 10 ** level : level).toPrecision(4)))));
      }
      parts.push(make("svg:text", { x: L, y: H - 4 }, number(this.min)), make("svg:text", { x: this.width - R, y: H - 4, "text-anchor": "end" }, number(this.max)));
      this.marks = [];
      let free = -Infinity;
      for (const row of marks) {
        // The steps of another round are not these.
        if (row.step < this.min || row.step > this.max || row.round !== data.round) continue;
        const x = this.x(row.step), back = BACK.has(row.type) ? " back" : "";
        const where = `after step ${number(row.step)}${severalRounds ? ` of ${roundName(row.round)}` : ""}`;
        const line = make("svg:path", { class: `mark${back}`, d: `M${x} ${T}V${H - B}` }, make("svg:title", {}, `${row.source ?? ""}: ${said(row)}, ${where}`));
        let label = null;
        if (x > free) {
          const text = (row.name ?? row.type).slice(0, 24);
          label = make("svg:text", { class: `said${back}`, x: x + 3, y: T - 5 }, text);
          free = x + 10 + 6.2 * text.length;
        }
        this.marks.push([row, line, label]);
        parts.push(line, label);
      }
      this.paths = [];
      // What the run went back from first, so that its own line lies above.
      const pieces = [];
      for (const curve of this.curves) {
        const until = curve.until === null ? Infinity : curve.until;
        const rest = trials.has(curve.branch) ? "curve trial" : "curve old";
        if (until !== Infinity) pieces.unshift([curve, rest, until, Infinity, false]);
        if (until >= 0) pieces.push([curve, "curve", -Infinity, until, state.smooth && curve.value.length > 60]);
      }
      for (const [curve, kind, from, to, smooth] of pieces) {
        if (smooth) {
          const raw = make("svg:path", { class: `${kind} raw` });
          this.paths.push([curve, curve.value, raw, from, to]);
          parts.push(raw);
        }
        const path = make("svg:path", { class: kind }, make("svg:title", {}, [this.metric, this.lineName(curve)].filter(Boolean).join(", ")));
        this.paths.push([curve, smooth ? smoothed(curve.value) : curve.value, path, from, to]);
        parts.push(path);
      }
      this.dots = make("svg:g");
      this.odd = make("svg:g");
      this.cursor = make("svg:path", { class: "cursor" });
      this.line = make("svg:path", { class: "hover", visibility: "hidden" });
      this.svg.replaceChildren(...parts.filter(Boolean), this.dots, this.odd, this.cursor, this.line);
      this.at();
    }
    at() {
      const odd = [], dots = [];
      let newest = null;
      for (const [curve, values, path, from, to] of this.paths) {
        let d = "", down = false;
        for (let i = 0; i < values.length && curve.t[i] <= state.t + 1e-9; i++) {
          if (curve.step[i] < from || curve.step[i] > to) continue;
          if (usable(values[i])) {
            // A value that was measured now and then is a point of its own.
            if (values.length <= 40) dots.push(make("svg:circle", { class: path.classList.contains("old") ? "dot old" : "dot", r: 3, cx: this.x(curve.step[i]), cy: this.y(values[i]) }, make("svg:title", {}, `${number(values[i])} at step ${number(curve.step[i])}`)));
            d += `${down ? "L" : "M"}${this.x(curve.step[i]).toFixed(1)} ${this.y(values[i]).toFixed(1)}`;
            down = true;
            if (newest === null || curve.t[i] >= newest.t) newest = { t: curve.t[i], step: curve.step[i], value: curve.value[i] };
          } else {
            down = false;
            if (typeof values[i] === "string") odd.push(make("svg:path", { class: "odd", d: `M${this.x(curve.step[i])} ${H - B}l-4 7h8z` }, make("svg:title", {}, `${values[i]} at step ${curve.step[i]}`)));
          }
        }
        path.setAttribute("d", d);
      }
      this.odd.replaceChildren(...odd);
      this.dots.replaceChildren(...dots);
      for (const [row, line, label] of this.marks) {
        for (const node of [line, label]) { node?.classList.toggle("later", row.t > state.t + 1e-9); node?.classList.toggle("chosen", row.seq === state.chosen); }
      }
      this.newest = newest;
      if (newest && state.t < end - 1e-9) this.cursor.setAttribute("d", `M${this.x(newest.step)} ${T}V${H - B}`);
      else this.cursor.setAttribute("d", "");
      this.tell();
    }
    tell() { this.value.textContent = this.newest ? `${number(this.newest.value)} at step ${number(this.newest.step)}` : ""; }
    hover(event) {
      const box = this.svg.getBoundingClientRect();
      const step = this.min + ((event.clientX - box.left - L) / (this.width - L - R)) * (this.max - this.min);
      let best = null;
      for (const curve of this.curves) {
        for (let i = 0; i < curve.step.length && curve.t[i] <= state.t; i++) {
          const away = Math.abs(curve.step[i] - step);
          if (best === null || away < best.away || (away === best.away && (curve.round > best.curve.round || (curve.round === best.curve.round && curve.branch > best.curve.branch)))) best = { away, step: curve.step[i], value: curve.value[i], curve };
        }
      }
      if (!best) return;
      this.line.setAttribute("visibility", "visible");
      this.line.setAttribute("d", `M${this.x(best.step)} ${T}V${H - B}`);
      const name = this.lineName(best.curve);
      this.value.textContent = `${number(best.value)} at step ${number(best.step)}${name ? `, ${name}` : ""}`;
    }
  }

  const drawCurves = () => {
    for (const metric of metrics) {
      if (state.shown.has(metric) && !plots.has(metric)) plots.set(metric, new Plot(metric));
      if (!state.shown.has(metric)) plots.delete(metric);
    }
    const nothing = metrics.length ? [] : [make("p", { class: "dim" }, "No metric was recorded.")];
    $("plots").replaceChildren(...nothing, ...metrics.filter((each) => plots.has(each)).map((each) => plots.get(each).node));
    for (const plot of plots.values()) plot.draw();
  };
  const chip = (label, pressed, toggle) => {
    const button = make("button", { type: "button", class: "chip", "aria-pressed": pressed() }, label);
    button.addEventListener("click", () => { toggle(); button.setAttribute("aria-pressed", pressed()); });
    return button;
  };
  const bar = make("div", { class: "bar" });
  for (const metric of metrics) bar.append(chip(metric, () => state.shown.has(metric), () => {
    if (!state.shown.delete(metric)) state.shown.add(metric);
    drawCurves();
  }));
  bar.append(make("span", { class: "spacer" }),
    chip("log y", () => state.log, () => { state.log = !state.log; plots.forEach((plot) => plot.rebuild()); }),
    chip("smooth", () => state.smooth, () => { state.smooth = !state.smooth; plots.forEach((plot) => plot.draw()); }));
  $("curves").append(make("h2", {}, "Curves"), bar, make("div", { id: "plots" }));

  // --- journal ----------------------------------------------------------------------------------
  const filter = { text: "", source: "", status: "", all: false };
  const body = make("tbody");
  const count = make("span", { class: "faint", role: "status" });
  const scroll = make("div", { class: "scroll", tabindex: "0" });
  const columns = [["seq", "n"], ...(severalRounds ? [["round", "n"]] : []), ["step", "n"], ["time", "hide n"], ["source", "who"], ["request", "say"], ["result", ""]];
  const rowsOf = () => {
    const found = [...data.requests, ...(filter.all ? data.rows : drifts)].sort((a, b) => a.seq - b.seq);
    const text = filter.text.toLowerCase();
    return found.filter((row) =>
      (!filter.source || row.source === filter.source) && (!filter.status || row.status === filter.status) &&
      (!text || JSON.stringify(row).toLowerCase().includes(text)));
  };
  let drawn = [];
  const drawJournal = () => {
    const found = rowsOf();
    drawn = found.slice(-3000).map((row) => {
      const isDrift = drifts.includes(row);
      const what = make("td", { class: "say mono" }, row.status !== undefined || isDrift ? said(row) : row.type);
      const more = [row.reason, row.why ? `why: ${row.why}` : null, isDrift ? null : row.data].filter(Boolean).join("; ");
      if (more) what.append(" ", make("span", { class: "faint" }, more));
      const node = make("tr", { tabindex: "0", "data-seq": row.seq },
        make("td", { class: "n faint" }, number(row.seq)),
        severalRounds ? make("td", { class: "n" }, number((row.round ?? 0) + 1)) : null,
        make("td", { class: "n" }, number(row.step) + (row.branch ? ` · b${row.branch}` : "")),
        make("td", { class: "n hide faint" }, clock(row.t - start)),
        make("td", { class: "who" }, make("span", {}, row.source ?? "",
          row.actor && row.actor !== row.source ? make("span", { class: "faint" }, ` ${row.actor}`) : null)),
        what, make("td", { class: `s-${/^\w+$/.test(row.status ?? "") ? row.status : ""}` }, row.status ?? ""));
      const choose = () => { state.chosen = row.seq; go(row.t); };
      node.addEventListener("click", choose);
      node.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(); });
      return [row, node];
    });
    const none = make("tr", { class: "none" }, make("td", { colspan: columns.length }, "no row is like this"));
    body.replaceChildren(...(drawn.length > 0 ? drawn.map(([, node]) => node) : [none]));
    const left = data.left_out ? `, ${data.left_out.toLocaleString("en-US")} older ones are in the journal alone` : "";
    const rest = scroll.scrollHeight > scroll.clientHeight + 1 ? ", scroll for the rest" : "";
    count.textContent = `${found.length.toLocaleString("en-US")} row${found.length === 1 ? "" : "s"}${rest}${left}`;
    markRows();
  };
  const markRows = () => {
    for (const [row, node] of drawn) {
      node.classList.toggle("later", row.t > state.t + 1e-9);
      node.classList.toggle("chosen", row.seq === state.chosen);
    }
  };
  const pick = (label, values, set) => {
    const select = make("select", { "aria-label": label }, make("option", { value: "" }, label));
    for (const value of [...new Set(values.filter(Boolean))].sort()) select.append(make("option", { value }, value));
    select.addEventListener("change", () => { set(select.value); drawJournal(); });
    return select;
  };
  const search = make("input", { type: "search", placeholder: "Find in the journal", "aria-label": "Find in the journal" });
  search.addEventListener("input", () => { filter.text = search.value; drawJournal(); });
  $("journal").append(make("h2", {}, "Journal"), make("div", { class: "bar" }, search,
    pick("any source", [...data.requests, ...data.rows].map((row) => row.source), (value) => { filter.source = value; }),
    pick("any result", data.requests.map((row) => row.status), (value) => { filter.status = value; }),
    chip("all rows", () => filter.all, () => { filter.all = !filter.all; drawJournal(); }),
    make("span", { class: "spacer" }), count),
    scroll);
  scroll.append(make("table", {},
    make("thead", {}, make("tr", {}, ...columns.map(([label, kind]) => make("th", { class: kind, scope: "col" }, label)))), body));

  // --- about ------------------------------------------------------------------------------------
  const list = (value) => {
    const dl = make("dl");
    for (const [key, each] of Object.entries(value ?? {})) {
      if (each === null || each === undefined) continue;
      dl.append(make("dt", {}, key), make("dd", { class: "mono" }, typeof each === "object" ? JSON.stringify(each) : String(each)));
    }
    return dl;
  };
  const facts = {
    run: data.run, seed: data.seed, events: data.events.toLocaleString("en-US"),
    "last hash of the journal": data.anchor, "report made": new Date(data.made_at * 1000).toLocaleString(), it2nb: data.it2nb,
  };
  $("about").append(make("h2", {}, "About the run"), list(facts));
  if (data.cell) $("about").append(make("details", {}, make("summary", {}, "The cell"), make("pre", {}, data.cell)));
  if (Object.keys(data.environment).length) $("about").append(make("details", {}, make("summary", {}, "Its surroundings"), list(data.environment)));

  // --- playing ----------------------------------------------------------------------------------
  const slider = $("at"), button = $("run");
  const stepAt = (t) => {
    let found = null;
    for (const curve of data.curves) {
      let low = 0, high = curve.t.length;
      while (low < high) { const mid = (low + high) >> 1; if (curve.t[mid] <= t + 1e-9) low = mid + 1; else high = mid; }
      if (low && (found === null || curve.t[low - 1] > found[0])) found = [curve.t[low - 1], curve.step[low - 1], curve.round];
    }
    return found === null ? [0, 0] : found.slice(1);
  };
  const show = () => {
    slider.value = String(Math.round(((state.t - start) / (end - start)) * 1000));
    const [step, round] = stepAt(state.t);
    const where = `${severalRounds ? `${roundName(round)}, ` : ""}step ${number(step)}, ${clock(state.t - start)}`;
    $("now").textContent = where;
    slider.setAttribute("aria-valuetext", where);
    drawKnobs();
    plots.forEach((plot) => plot.at());
    markRows();
  };
  const go = (t) => { state.t = Math.min(end, Math.max(start, t)); show(); };
  slider.addEventListener("input", () => { state.chosen = null; go(start + (Number(slider.value) / 1000) * (end - start)); });
  let before = 0;
  const turn = (now) => {
    if (!state.playing) return;
    const share = (now - before) / 1000 / (12 / state.pace);
    before = now;
    go(state.t + share * (end - start));
    if (state.t >= end) play(false); else requestAnimationFrame(turn);
  };
  const play = (on) => {
    state.playing = on;
    button.textContent = on ? "Pause" : "Play";
    button.setAttribute("aria-pressed", on);
    if (!on) return;
    if (state.t >= end - 1e-9) go(start);
    before = performance.now();
    requestAnimationFrame(turn);
  };
  button.addEventListener("click", () => play(!state.playing));
  for (const pace of [0.5, 1, 2, 4]) $("pace").append(make("option", { value: pace }, `${pace}×`));
  $("pace").value = "1";
  $("pace").addEventListener("change", () => { state.pace = Number($("pace").value); });
  for (const row of marks) {
    const x = ((row.t - start) / (end - start)) * 1000;
    $("ticks").append(make("svg:path", { class: BACK.has(row.type) ? "back" : null, d: `M${x} 0V10` }));
  }
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(() => plots.forEach((plot) => plot.draw())); });
  drawCurves();
  drawJournal();
  play(false);
  show();
})();
