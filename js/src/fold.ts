/** A list that scrolls says so: its edges fade, and what lies below is counted. */

import { h, setAttribute, setText, show } from "./dom";

/** A row of which less than this part is in sight counts as one that is still to come. */
const IN_SIGHT = 0.6;
/** How far one press scrolls, of the height that is in sight. */
const PAGE = 0.8;

export class Fold {
  /** Holds the list; the edges lie over it. */
  readonly element: HTMLElement;
  #more = h("button", {
    type: "button",
    class: "it2-fold-more",
    // For a pointer: the keyboard comes to the rows themselves, which scroll into sight.
    tabindex: -1,
    "aria-hidden": "true",
  });
  #below = new Set<Element>();
  #above = new Set<Element>();
  #seen: IntersectionObserver | null = null;

  constructor(list: HTMLElement, signal: AbortSignal) {
    this.element = h("div", { class: "it2-fold" }, list, this.#more);
    show(this.#more, false);
    this.#more.addEventListener("click", () => list.scrollBy(0, PAGE * list.clientHeight), {
      signal,
    });
    if (typeof IntersectionObserver === "undefined") return;
    // The browser tells when a row comes into sight; asking for positions would lay the page out.
    const seen = new IntersectionObserver((entries) => this.#note(entries), {
      root: list,
      threshold: IN_SIGHT,
    });
    this.#seen = seen;
    signal.addEventListener("abort", () => seen.disconnect(), { once: true });
  }

  /** Watch these rows, and no others. */
  watch(rows: Iterable<Element>): void {
    this.#seen?.disconnect();
    this.#below.clear();
    this.#above.clear();
    for (const row of rows) this.#seen?.observe(row);
    this.#tell();
  }

  #note(entries: IntersectionObserverEntry[]): void {
    for (const { target, intersectionRatio, boundingClientRect: row, rootBounds } of entries) {
      this.#below.delete(target);
      this.#above.delete(target);
      // Nothing has a height while the panel itself is hidden.
      if (intersectionRatio >= IN_SIGHT || row.height === 0 || rootBounds === null) continue;
      (row.top > rootBounds.top ? this.#below : this.#above).add(target);
    }
    this.#tell();
  }

  #tell(): void {
    const below = this.#below.size;
    setAttribute(this.element, "data-above", this.#above.size > 0 ? "" : null);
    setAttribute(this.element, "data-below", below > 0 ? "" : null);
    if (below > 0) setText(this.#more, `${below} more ↓`);
    show(this.#more, below > 0);
  }
}
