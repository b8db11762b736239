/** What the run printed, folded away: the newest line in the summary, the last lines below it. */

import { h, setText, show } from "./dom";
import { grouped } from "./numbers";
import type { OutputLine } from "./wire";

/** How far above its end the list may be scrolled and still follow it, pixels. */
const NEAR = 24;

export class OutputView {
  readonly element = h("details", { class: "it2-output" });
  #newest = h("span", { class: "it2-mono it2-newest it2-dim" });
  #count = h("span", { class: "it2-faint it2-count" });
  #list = h("pre", {
    class: "it2-mono",
    tabindex: 0,
    role: "log",
    "aria-label": "Output of the run",
  });
  #shown: readonly OutputLine[] = [];
  #drawn = new Map<number, { line: OutputLine; element: HTMLElement }>();

  constructor(signal: AbortSignal) {
    // Read by whoever goes there: a bar that moves would be spoken without end.
    this.#list.setAttribute("aria-live", "off");
    this.element.append(
      h(
        "summary",
        {},
        h("span", { class: "it2-title", text: "Output" }),
        this.#newest,
        this.#count,
      ),
      this.#list,
    );
    show(this.element, false);
    this.element.addEventListener("toggle", () => this.#toggle(), { signal });
  }

  update(lines: readonly OutputLine[]): void {
    if (lines === this.#shown) return;
    this.#shown = lines;
    const newest = newestOf(lines);
    show(this.element, newest !== "");
    if (this.element.open) this.#draw();
    else setText(this.#newest, newest);
    const count = lines.length - (lines.at(-1)?.text === "" ? 1 : 0);
    setText(this.#count, `${grouped(count)} ${count === 1 ? "line" : "lines"}`);
  }

  #toggle(): void {
    if (this.element.open) {
      setText(this.#newest, "");
      this.#draw();
      this.#list.scrollTop = this.#list.scrollHeight;
    } else {
      setText(this.#newest, newestOf(this.#shown));
      this.#drawn.clear();
      this.#list.replaceChildren();
    }
  }

  /** Only lines that changed are made anew; a reader who scrolled up stays there. */
  #draw(): void {
    const list = this.#list;
    const follows = list.scrollTop + list.clientHeight >= list.scrollHeight - NEAR;
    const known = new Set(this.#shown.map((each) => each.line));
    for (const [number, { element }] of this.#drawn) {
      if (known.has(number)) continue;
      element.remove();
      this.#drawn.delete(number);
    }
    let at = list.firstElementChild;
    let before: number | null = null;
    for (const line of this.#shown) {
      const drawn = this.#drawn.get(line.line);
      const element = drawn?.element ?? h("div", { class: "it2-line" });
      if (drawn?.line !== line) {
        fill(element, line);
        this.#drawn.set(line.line, { line, element });
      }
      // Lines that are still on their way are no secret.
      const gap = before !== null && line.line > before + 1;
      element.classList.toggle("it2-after-gap", gap);
      before = line.line;
      if (element === at) at = at.nextElementSibling;
      else list.insertBefore(element, at);
    }
    if (follows) list.scrollTop = list.scrollHeight;
  }
}

function newestOf(lines: readonly OutputLine[]): string {
  for (let at = lines.length - 1; at >= 0; at--) {
    const text = lines[at]?.text ?? "";
    if (text !== "") return text;
  }
  return "";
}

/** A line as text: a stretch of one look is one element, and nothing is parsed. */
function fill(element: HTMLElement, { text, look }: OutputLine): void {
  if (look === "") {
    // An empty line has its height too.
    setText(element, text === "" ? "\u200b" : text);
    return;
  }
  const characters = [...text];
  const parts: HTMLElement[] = [];
  for (let at = 0; at < characters.length; ) {
    const one = look[at] ?? "a";
    let end = at + 1;
    while (end < characters.length && (look[end] ?? "a") === one) end += 1;
    const lower = one.toLowerCase();
    const part = h("span", { text: characters.slice(at, end).join("") });
    if (lower !== "a") part.dataset.color = lower;
    if (lower !== one) part.dataset.bold = "";
    parts.push(part);
    at = end;
  }
  element.replaceChildren(...parts);
}
