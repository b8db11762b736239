/** The last rows of the journal: who asked what, what came of it. */

import { h, setAttribute, setText, show } from "./dom";
import { grouped } from "./numbers";
import type { Mark, Row } from "./wire";
import { roundName, rowExact, rowRemark, rowRequest, shortened } from "./words";

const MOST_SHOWN = 100;

interface Kind {
  label: string;
  types: string[] | null;
  query: string;
}

const KINDS: Kind[] = [
  { label: "requests", types: ["action_result"], query: "journal.requests()" },
  {
    label: "applied",
    types: ["action_result"],
    query: "journal.requests().query(\"status in ['applied', 'clamped']\")",
  },
  {
    label: "refused",
    types: ["action_result"],
    query: "journal.requests().query(\"status in ['rejected', 'failed', 'expired']\")",
  },
  {
    label: "notes",
    types: ["note", "guard_tripped", "run_failed", "journal_degraded", "knob_drifted"],
    query: "journal.frame().query(\"type == 'note'\")",
  },
  {
    label: "checkpoints",
    types: ["checkpoint_saved", "checkpoint_loaded"],
    query: "journal.frame().query(\"type.str.startswith('checkpoint')\")",
  },
  { label: "all", types: null, query: "journal.frame()" },
];

const CHANGED = new Set(["applied", "clamped"]);

export class JournalView {
  readonly element = h("section", { class: "it2-journal", "aria-label": "Journal" });
  #kind = 0;
  #source = "";
  #chips: HTMLButtonElement[] = [];
  #sources = h("select", { class: "it2-chip", "aria-label": "Source" });
  #query = h("code", { class: "it2-query it2-hide-m" });
  #copy = h("button", { type: "button", class: "it2-chip", text: "copy query" });
  #body = h("tbody");
  #none = h("p", { class: "it2-none" });
  #scroll = h("div", {
    class: "it2-scroll",
    tabindex: 0,
    role: "region",
    "aria-label": "Journal rows",
  });
  #shown = new Map<number, HTMLTableRowElement>();
  #rows: readonly Row[] = [];
  #marks: ReadonlySet<number> = new Set();
  #variable = "it2nb.current()";
  #rounds = false;
  #roundHead = h("th", { scope: "col", class: "it2-n", text: "round", hidden: "" });
  #selected: number | null = null;

  constructor(
    private readonly select: (seq: number | null) => void,
    private readonly more: (types: string[]) => void,
    signal: AbortSignal,
  ) {
    KINDS.forEach((kind, index) => {
      const chip = h("button", { type: "button", class: "it2-chip", text: kind.label });
      chip.addEventListener("click", () => this.#pick(index), { signal });
      this.#chips.push(chip);
    });
    this.#sources.addEventListener(
      "change",
      () => {
        this.#source = this.#sources.value;
        this.#render();
      },
      { signal },
    );
    this.#copy.addEventListener("click", () => void this.#copyQuery(), { signal });
    const chips = h(
      "div",
      { class: "it2-chips", role: "group", "aria-label": "Kind" },
      ...this.#chips,
    );
    const bar = h("div", { class: "it2-bar" }, h("h3", { text: "Journal" }), chips, this.#sources);
    bar.append(h("span", { class: "it2-spacer" }), this.#query, this.#copy);
    const head = h("tr");
    for (const [name, hide] of COLUMNS) {
      if (name === "step") head.append(this.#roundHead);
      head.append(h("th", { scope: "col", class: hide, text: name }));
    }
    const table = h("table", {}, h("thead", {}, head), this.#body);
    this.#scroll.append(table);
    this.element.append(bar, this.#scroll, this.#none);
    this.#body.addEventListener("click", (event) => this.#click(event), { signal });
  }

  /** `rounds` tells whether there are several: then each row says which one it is of. */
  update(rows: readonly Row[], marks: readonly Mark[], variable: string, rounds: boolean): void {
    this.#variable = variable;
    if (rows === this.#rows && marks.length === this.#marks.size && rounds === this.#rounds) return;
    if (rounds !== this.#rounds) {
      this.#rounds = rounds;
      show(this.#roundHead, rounds);
      for (const line of this.#shown.values()) line.remove();
      this.#shown.clear();
    }
    this.#rows = rows;
    this.#marks = new Set(marks.map((mark) => mark.seq));
    this.#render();
  }

  /** Point out the row that a marker on a curve belongs to. */
  show(seq: number | null): void {
    this.#selected = seq;
    const row = this.#rows.find((each) => each.seq === seq);
    if (row !== undefined && !this.#matches(row)) this.#kind = KINDS.length - 1;
    this.#render();
    const line = seq === null ? undefined : this.#shown.get(seq);
    if (line === undefined) return;
    // Only the list scrolls: the page stays where the reader has it.
    const top = line.offsetTop - this.#scroll.clientHeight / 2;
    this.#scroll.scrollTop = Math.max(0, top);
  }

  #pick(index: number): void {
    this.#kind = index;
    const types = KINDS[index]?.types;
    if (types !== null && types !== undefined) this.more(types);
    this.#render();
  }

  #matches(row: Row): boolean {
    const kind = KINDS[this.#kind] as Kind;
    if (kind.types !== null && !kind.types.includes(row.type)) return false;
    if (kind.label === "applied" && !CHANGED.has(row.status ?? "")) return false;
    if (kind.label === "refused" && (row.status === null || CHANGED.has(row.status))) return false;
    if (kind.label === "all" && row.type === "action_submitted" && this.#answered(row))
      return false;
    return this.#source === "" || row.source === this.#source;
  }

  /** Whether a request's result is among the rows: then the result tells it all. */
  #answered(row: Row): boolean {
    return this.#rows.some(
      (each) => each.type === "action_result" && each.action_id === row.action_id,
    );
  }

  #render(): void {
    this.#chips.forEach((chip, index) => {
      setAttribute(chip, "aria-pressed", String(index === this.#kind));
    });
    const sources = [...new Set(this.#rows.map((row) => row.source))].filter(
      (each) => each !== null,
    );
    const options = ["", ...sources.sort()];
    if (options.length !== this.#sources.options.length) {
      this.#sources.replaceChildren(
        ...options.map((each) => h("option", { value: each, text: each || "any source" })),
      );
      this.#sources.value = this.#source;
    }
    setText(this.#query, this.#queryText());
    const rows = this.#rows
      .filter((row) => this.#matches(row))
      .slice(-MOST_SHOWN)
      .reverse();
    const next = new Map<number, HTMLTableRowElement>();
    for (const row of rows)
      next.set(row.seq, this.#shown.get(row.seq) ?? rowElement(row, this.#rounds));
    for (const [seq, line] of this.#shown) if (!next.has(seq)) line.remove();
    this.#shown = next;
    let at = this.#body.firstChild;
    for (const [seq, line] of next) {
      setAttribute(line, "aria-current", seq === this.#selected ? "true" : null);
      setAttribute(line, "data-marked", this.#marks.has(seq) ? "" : null);
      const button = line.querySelector("button");
      if (button !== null) button.disabled = !this.#marks.has(seq);
      if (line === at) at = at.nextSibling;
      else this.#body.insertBefore(line, at);
    }
    setText(this.#none, rows.length === 0 ? "Nothing yet." : "");
    show(this.#none, rows.length === 0);
    show(this.#scroll, rows.length > 0);
  }

  #queryText(): string {
    const kind = KINDS[this.#kind] as Kind;
    const base = `${this.#variable}.${kind.query}`;
    return this.#source === "" ? base : `${base}.query("source == '${this.#source}'")`;
  }

  #click(event: Event): void {
    const line = (event.target as Element).closest("tr");
    if (line?.dataset.seq === undefined || line.dataset.marked === undefined) return;
    const seq = Number(line.dataset.seq);
    this.select(seq === this.#selected ? null : seq);
  }

  async #copyQuery(): Promise<void> {
    let said = "copied";
    try {
      await navigator.clipboard.writeText(this.#queryText());
    } catch {
      // No clipboard without https or permission: leave the text selected instead.
      const range = document.createRange();
      range.selectNodeContents(this.#query);
      getSelection()?.removeAllRanges();
      getSelection()?.addRange(range);
      this.#query.classList.remove("it2-hide-m");
      said = "press Ctrl+C";
    }
    setText(this.#copy, said);
    setTimeout(() => setText(this.#copy, "copy query"), 1_500);
  }
}

const COLUMNS: [string, string][] = [
  ["seq", "it2-n it2-hide-s"],
  ["step", "it2-n"],
  ["time", "it2-hide-m"],
  ["source", ""],
  ["request", ""],
  ["result", ""],
];

function rowElement(row: Row, rounds: boolean): HTMLTableRowElement {
  const line = h("tr", { "data-seq": row.seq });
  const step = h("button", {
    type: "button",
    class: "it2-link",
    text: grouped(row.step),
    "aria-label": `${rounds ? `${roundName(row.round)}, ` : ""}step ${grouped(row.step)}: show on the curves`,
  });
  const remark = rowRemark(row);
  const actor = row.actor ? `${row.source ?? ""} as ${row.actor}` : (row.source ?? "");
  const say = h("td", { class: "it2-say it2-mono", title: rowExact(row) }, rowRequest(row));
  if (remark) say.append(" ", h("span", { class: "it2-faint", text: shortened(remark) }));
  const status = row.status ?? "";
  line.append(
    h("td", { class: "it2-n it2-hide-s it2-faint", text: String(row.seq) }),
    ...(rounds ? [h("td", { class: "it2-n", text: String(row.round + 1) })] : []),
    h("td", { class: "it2-n" }, step),
    h("td", { class: "it2-hide-m", text: timeOf(row.ts) }),
    h("td", { class: "it2-source", text: actor, title: actor }),
    say,
    h("td", { class: "it2-status", "data-status": status, text: status }),
  );
  return line;
}

/** Local time of day with milliseconds. */
function timeOf(ts: number): string {
  const date = new Date(ts * 1_000);
  const two = (value: number) => String(value).padStart(2, "0");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${clock}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
