// @vitest-environment jsdom
import { beforeEach, expect, test, vi } from "vitest";
import golden from "../../tests/golden/panel.json";
import { Knobs } from "../src/knobs";
import { EMPTY, reduce, type Store } from "../src/store";
import type { PanelMessage } from "../src/wire";

type Tell = (entries: Partial<IntersectionObserverEntry>[]) => void;

let watched: Element[];
let root: Element | null;
let tell: Tell;
let store: Store;
let knobs: Knobs;

beforeEach(() => {
  watched = [];
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(heard: Tell, options: IntersectionObserverInit) {
        tell = heard;
        root = options.root as Element;
      }
      observe(row: Element): void {
        watched.push(row);
      }
      disconnect(): void {
        watched = [];
      }
    },
  );
  document.body.replaceChildren();
  const message = golden.messages[0]?.message as unknown as PanelMessage;
  store = reduce(EMPTY, { kind: "message", message, now: 0 });
  knobs = new Knobs(
    () => {},
    () => {},
    new AbortController().signal,
  );
  document.body.append(knobs.element);
  knobs.update(store, 0);
});

/** As a browser tells it: each row is 50 px high, the list shows those from `top` on. */
function scrolled(top: number, height: number): void {
  tell(
    watched.map((target, at) => {
      const rect = { top: at * 50 - top, height: 50 };
      const inside = Math.min(height, rect.top + 50) - Math.max(0, rect.top);
      return {
        target,
        boundingClientRect: rect as DOMRectReadOnly,
        rootBounds: { top: 0 } as DOMRectReadOnly,
        intersectionRatio: Math.max(0, inside) / 50,
      };
    }),
  );
}

function hint(): { above: boolean; below: boolean; text: string | null } {
  const fold = knobs.element.querySelector(".it2-fold") as HTMLElement;
  const more = fold.querySelector<HTMLElement>(".it2-fold-more");
  return {
    above: "above" in fold.dataset,
    below: "below" in fold.dataset,
    text: more === null || more.hidden ? null : more.textContent,
  };
}

test("a list that scrolls says how many knobs are below, and that there are some above", () => {
  const count = store.knobNames.length;
  expect(watched).toHaveLength(count);
  expect(root).toBe(knobs.element.querySelector(".it2-knob-list"));
  expect(hint()).toEqual({ above: false, below: false, text: null });
  scrolled(0, 225);
  expect(hint()).toEqual({ above: false, below: true, text: `${count - 4} more ↓` });
  scrolled(100, 225);
  expect(hint()).toEqual({ above: true, below: true, text: `${count - 6} more ↓` });
  scrolled(count * 50 - 225, 225);
  expect(hint()).toEqual({ above: true, below: false, text: null });
});

test("knobs that the search leaves out are not counted, wherever the list was", () => {
  scrolled(100, 225);
  knobs.search.value = "lr";
  // A browser says nothing of a row that goes from out of sight to nowhere.
  knobs.search.dispatchEvent(new Event("input"));
  expect(watched.map((row) => (row as HTMLElement).dataset.knob)).toEqual(["lr"]);
  expect(hint()).toEqual({ above: false, below: false, text: null });
  scrolled(0, 225);
  expect(hint()).toEqual({ above: false, below: false, text: null });
});

test("the hint is for the pointer: it is no stop of the Tab key, and a press scrolls", () => {
  scrolled(0, 225);
  const more = knobs.element.querySelector(".it2-fold-more") as HTMLButtonElement;
  expect(more.tabIndex).toBe(-1);
  const list = knobs.element.querySelector(".it2-knob-list") as HTMLElement;
  const by = vi.fn();
  list.scrollBy = by;
  more.click();
  expect(by).toHaveBeenCalledOnce();
});
