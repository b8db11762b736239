// @vitest-environment jsdom
import { beforeEach, expect, test, vi } from "vitest";
import golden from "../../tests/golden/panel.json";
import { Knobs } from "../src/knobs";
import { type Ask, EMPTY, reduce, type Store } from "../src/store";
import type { Json, KnobView, LastRequest, PanelMessage } from "../src/wire";

const [snapshot, batch] = golden.messages.map((each) => each.message) as unknown as PanelMessage[];

let store: Store;
let knobs: Knobs;
let sent: [string, Json][];
let modes: [string, string][];

beforeEach(() => {
  vi.useFakeTimers();
  document.body.replaceChildren();
  sent = [];
  modes = [];
  store = reduce(EMPTY, { kind: "message", message: snapshot as PanelMessage, now: 0 });
  knobs = new Knobs(
    (name, value) => {
      sent.push([name, value]);
      const ask: Ask = {
        id: `a${sent.length}`,
        type: "set_knob",
        name,
        requested: value,
        sentAt: 0,
        received: false,
      };
      store = reduce(store, { kind: "asked", ask });
      knobs.update(store, 0);
    },
    (name, mode) => modes.push([name, mode]),
    new AbortController().signal,
  );
  document.body.append(knobs.element);
  knobs.update(store, 0);
});

function row(name: string): HTMLElement {
  const found = document.querySelector<HTMLElement>(`[data-knob="${name}"]`);
  if (found === null) throw new Error(`no row ${name}`);
  return found;
}

function input(name: string, kind: string): HTMLInputElement {
  return row(name).querySelector(`input[type=${kind}]`) as HTMLInputElement;
}

function said(name: string): string {
  return row(name).querySelector(".it2-said")?.textContent ?? "";
}

function type(name: string, text: string): void {
  const field = input(name, "text");
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

function enter(name: string): void {
  input(name, "text").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
}

/** The kernel's word on a knob. */
function tell(name: string, part: Partial<KnobView>, over: { [id: string]: true } = {}): void {
  const view = { ...(store.knobs[name] as KnobView), ...part };
  const asks = Object.fromEntries(Object.entries(store.asks).filter(([id]) => !(id in over)));
  store = { ...store, asks, knobs: { ...store.knobs, [name]: view } };
  knobs.update(store, 0);
}

test("a typed number is sent as it is, once, and bit-equal", () => {
  type("lr", "2.5e-6");
  expect(sent).toEqual([]);
  enter("lr");
  input("lr", "text").dispatchEvent(new Event("change"));
  expect(sent).toEqual([["lr", 2.5e-6]]);
  expect(input("lr", "text").value).toBe("2.5e-6");
});

test.each(["0,001", "1e-", "abc"])("%s: red, refused, the true value is back", (text) => {
  type("lr", text);
  expect(input("lr", "text").getAttribute("aria-invalid")).toBe("true");
  enter("lr");
  expect(input("lr", "text").value).toBe("3e-4");
  expect(input("lr", "text").getAttribute("aria-invalid")).toBe("true");
  expect(said("lr")).toBe(`asked "${text}", rejected: not a number; still 3e-4`);
  expect(sent).toEqual([["lr", text]]);
  type("lr", "1e-3");
  expect(input("lr", "text").getAttribute("aria-invalid")).toBeNull();
});

function refuse(name: string): void {
  const last: LastRequest = {
    v: 2,
    id: "refused",
    status: "rejected",
    requested: "nan",
    applied: null,
    step: 7,
    reason: "nan is not a number",
    source: "python",
  };
  tell(name, { last });
}

test.each(["", "  "])("an emptied field goes back to the value in force: %o", (text) => {
  refuse("lr");
  type("lr", text);
  expect(input("lr", "text").getAttribute("aria-invalid")).toBeNull();
  enter("lr");
  expect(input("lr", "text").value).toBe("3e-4");
  expect(sent).toEqual([]);
  expect(said("lr")).toBe("");
});

test("a refusal is over when the value in force was typed, until the next one", () => {
  refuse("lr");
  expect(said("lr")).toBe("python asked nan, rejected: nan is not a number; still 3e-4");
  type("lr", "0.0003");
  enter("lr");
  expect(said("lr")).toBe("");
  tell("lr", {});
  expect(said("lr")).toBe("");
  expect(sent).toEqual([]);
  const { last } = store.knobs.lr as KnobView;
  tell("lr", { last: { ...(last as LastRequest), id: "another" } });
  expect(said("lr")).toContain("rejected");
});

test("a field with a hand in it keeps its text until the hand is gone", () => {
  const field = input("lr", "text");
  field.dispatchEvent(new Event("focus"));
  tell("lr", { value: 2.9e-3 });
  expect(field.value).toBe("3e-4");
  field.dispatchEvent(new Event("blur"));
  tell("lr", { value: 2.9e-3 });
  expect(field.value).toBe("0.0029");

  // After Enter it follows again, though the focus stays, until it is selected once more.
  type("lr", "2e-3");
  enter("lr");
  tell("lr", { value: 2e-3 }, { [Object.keys(store.asks)[0] ?? ""]: true });
  tell("lr", { value: 1.9e-3 });
  expect(field.value).toBe("0.0019");
  field.dispatchEvent(new Event("select"));
  tell("lr", { value: 1.8e-3 });
  expect(field.value).toBe("0.0019");
});

test("a number that does not fit is asked for as a number", () => {
  type("accumulate", "2.5");
  enter("accumulate");
  expect(sent).toEqual([["accumulate", 2.5]]);
  expect(input("accumulate", "text").value).toBe("4");
  expect(said("accumulate")).toBe("asked 2.5, rejected: not a whole number; still 4");
});

test("a long number is held exactly and covered by a short one", () => {
  tell("lr", { value: 2.9740504912e-5 });
  expect(input("lr", "text").value).toBe("2.9740504912e-5");
  expect(row("lr").querySelector(".it2-cover")?.textContent).toBe("2.9741e-5");
  tell("lr", { value: 3e-5 });
  expect(row("lr").querySelector(".it2-cover")?.textContent).toBe("");
});

test("a drag is one request, of its last value; echoes don't move the thumb", () => {
  const slider = input("lr", "range");
  slider.dispatchEvent(new Event("pointerdown"));
  for (let tick = 100; tick <= 160; tick++) {
    slider.value = String(tick);
    slider.dispatchEvent(new Event("input"));
    tell("lr", { value: 3e-4 + tick * 1e-9 });
    expect(slider.value).toBe(String(tick));
  }
  expect(sent).toEqual([]);
  slider.dispatchEvent(new Event("pointerup"));
  slider.dispatchEvent(new Event("change"));
  expect(sent).toHaveLength(1);
  expect(sent[0]?.[1]).toBe(Number(input("lr", "text").value));
  // Until the result is there, late news of older values change nothing on the screen.
  tell("lr", { value: 1e-5 });
  expect(slider.value).toBe("160");
  tell("lr", { value: sent[0]?.[1] ?? null }, { a1: true });
  expect(slider.value).toBe("160");
});

test("a click on the track and arrow keys are requests too", () => {
  const slider = input("weight_decay", "range");
  slider.dispatchEvent(new Event("pointerdown"));
  slider.value = "0";
  slider.dispatchEvent(new Event("input"));
  slider.dispatchEvent(new Event("change"));
  expect(sent).toEqual([["weight_decay", 0]]);
  vi.advanceTimersByTime(10);
  for (const tick of ["1", "2", "3"]) {
    slider.value = tick;
    slider.dispatchEvent(new Event("input"));
    slider.dispatchEvent(new Event("change"));
    vi.advanceTimersByTime(100);
  }
  expect(sent).toHaveLength(1);
  vi.advanceTimersByTime(400);
  expect(sent).toHaveLength(2);
});

test("a rejected request snaps back to the true value", () => {
  type("clip", "3");
  enter("clip");
  expect(input("clip", "text").value).toBe("3");
  tell(
    "clip",
    {
      last: {
        v: 2,
        id: "a1",
        status: "rejected",
        requested: 3,
        applied: null,
        step: 5,
        reason: "locked",
        source: "panel",
      },
    },
    { a1: true },
  );
  expect(input("clip", "text").value).toBe("1");
  expect(said("clip")).toBe("asked 3, rejected: locked; still 1");
});

test("half-typed text is not overwritten, Escape gives it up", () => {
  type("clip", "2.");
  tell("clip", { value: 7 });
  expect(input("clip", "text").value).toBe("2.");
  input("clip", "text").dispatchEvent(
    new KeyboardEvent("keydown", { key: "Escape", bubbles: true }),
  );
  expect(input("clip", "text").value).toBe("7");
  expect(sent).toEqual([]);
});

test("bool, choice and text send their own types", () => {
  const box = input("augment", "checkbox");
  box.checked = false;
  box.dispatchEvent(new Event("change"));
  const select = row("sampler").querySelector("select") as HTMLSelectElement;
  select.selectedIndex = 1;
  select.dispatchEvent(new Event("change"));
  type("note", "warm");
  input("note", "text").dispatchEvent(new Event("change"));
  expect(sent).toEqual([
    ["augment", false],
    ["sampler", "hard"],
    ["note", "warm"],
  ]);
});

test("a mode is picked beside the value", () => {
  const select = row("lr").querySelector(".it2-mode") as HTMLSelectElement;
  expect(select.value).toBe("rescale");
  select.value = "hold";
  select.dispatchEvent(new Event("change"));
  expect(modes).toEqual([["lr", "hold"]]);
});

test("names and choices are text, whatever is in them", () => {
  const evil = '<img src=x onerror="window.hacked=1">';
  tell("sampler", { group: evil, description: evil });
  expect(document.querySelector("img")).toBeNull();
  const options = [...row("sampler").querySelectorAll("option")].map((each) => each.textContent);
  expect(options).toContain(evil);
});

test("search finds by every word, in name, group and description", () => {
  const shown = () =>
    [...document.querySelectorAll<HTMLElement>(".it2-knob:not([hidden])")].map(
      (each) => each.dataset.knob,
    );
  knobs.search.value = "learning RATE";
  knobs.search.dispatchEvent(new Event("input"));
  expect(shown()).toEqual(["lr"]);
  knobs.search.value = "variables a";
  knobs.search.dispatchEvent(new Event("input"));
  expect(shown()).toContain("accumulate");
  knobs.search.value = "zzz";
  knobs.search.dispatchEvent(new Event("input"));
  expect(shown()).toEqual([]);
  expect(document.querySelector(".it2-none")?.textContent).toContain("zzz");
});

test("27 learning rates keep their rows when one is added", () => {
  const view = store.knobs.lr as KnobView;
  const names = Array.from({ length: 27 }, (_, i) => `lr[${i}]`);
  store = {
    ...store,
    knobs: Object.fromEntries(names.map((name) => [name, { ...view, name }])),
    knobNames: names.slice(0, 26),
  };
  knobs.update(store, 0);
  const first = row("lr[0]");
  store = { ...store, knobNames: names };
  knobs.update(store, 0);
  expect(row("lr[0]")).toBe(first);
  expect(document.querySelectorAll(".it2-knob")).toHaveLength(27);
});

test("when the run is over, nothing can be asked and each control says why", () => {
  store = reduce(store, {
    kind: "message",
    message: { ...(batch as PanelMessage), n: 8 } as PanelMessage,
    now: 0,
  });
  store = { ...store, head: { ...store.head, status: "finished" } };
  knobs.update(store, 0);
  expect(
    [...document.querySelectorAll<HTMLInputElement>(".it2-knob input")].every(
      (each) => each.disabled,
    ),
  ).toBe(true);
  expect(input("lr", "range").title).toBe("the run has ended");
});

test("a request that the kernel does not confirm is said to be queued", () => {
  type("clip", "2");
  enter("clip");
  expect(said("clip")).toBe("asked 2");
  knobs.update(store, 1_500);
  expect(said("clip")).toBe("asked 2, queued until the cell ends");
});

test("a mode is shown only where something drives the knob", () => {
  const select = () => row("lr").querySelector<HTMLSelectElement>("select.it2-mode");
  expect(select()?.hidden).toBe(false);
  const lr = { ...(store.knobs.lr as KnobView), mode: null };
  knobs.update({ ...store, knobs: { ...store.knobs, lr } }, 0);
  expect(select()?.hidden).toBe(true);
  knobs.update(store, 0);
  expect([select()?.hidden, select()?.value]).toEqual([false, "rescale"]);
});

test("a sentence is short where arithmetic left noise, its title and the field are exact", () => {
  const noisy = 0.013499999999999998;
  const last = { ...(store.knobs.lr?.last as LastRequest), status: "rejected" as const };
  tell("lr", { value: noisy, last: { ...last, requested: 1, reason: "max 0.1" } });
  expect(said("lr")).toBe("asked 1, rejected: max 0.1; still 0.0135");
  const line = row("lr").querySelector(".it2-said") as HTMLElement;
  expect(line.title).toBe("asked 1, rejected: max 0.1; still 0.013499999999999998");
  expect(input("lr", "text").value).toBe("0.013499999999999998");

  type("lr", "0.30000000000000004");
  enter("lr");
  expect(sent.at(-1)).toEqual(["lr", 0.1 + 0.2]);
  expect(said("lr")).toBe("asked 0.3");
  tell("lr", { value: 0.3, last: { ...last, requested: 0.3 } }, { a1: true });
  expect(line.title).toBe("");
});

test("what a page refuses itself is as short", () => {
  tell("lr", { value: 0.1 + 0.2 });
  type("lr", "abc");
  enter("lr");
  expect(said("lr")).toBe('asked "abc", rejected: not a number; still 0.3');
});

test("a long name may go on after a dot or an underscore, and stays the name", () => {
  const label = row("weight_decay").querySelector(".it2-label");
  expect(label?.textContent).toBe("weight_decay");
  expect(label?.innerHTML).toBe("weight_<wbr>decay<wbr>");
});
