// @vitest-environment jsdom
import { beforeEach, expect, test } from "vitest";
import golden from "../../tests/golden/panel.json";
import { Actions } from "../src/actions";
import { EMPTY, reduce, type Store } from "../src/store";
import type { ActionSchema, Json, Offer, PanelMessage, Row } from "../src/wire";

const snapshot = golden.messages[0]?.message as unknown as PanelMessage;

let store: Store;
let actions: Actions;
let done: [string, { [key: string]: Json }][];

beforeEach(() => {
  document.body.replaceChildren();
  done = [];
  store = reduce(EMPTY, { kind: "message", message: snapshot, now: 0 });
  actions = new Actions(
    (type, payload) => done.push([type, payload]),
    new AbortController().signal,
  );
  document.body.append(actions.buttons, actions.menu, actions.drawer, actions.said);
  actions.update(store, 0);
});

function button(action: string): HTMLButtonElement {
  return document.querySelector(`[data-action=${action}]`) as HTMLButtonElement;
}

function menuItem(text: string): HTMLButtonElement {
  const items = [...document.querySelectorAll<HTMLButtonElement>("[role=menuitem]")];
  return items.find((each) => each.textContent?.startsWith(text)) as HTMLButtonElement;
}

function form(): HTMLFormElement {
  return actions.drawer.querySelector("form") as HTMLFormElement;
}

function labels(): string[] {
  const options = form().querySelector("select")?.options ?? [];
  return [...options].map((each) => each.text);
}

function choose(label: string): void {
  const select = form().querySelector("select") as HTMLSelectElement;
  select.selectedIndex = labels().indexOf(label);
  select.dispatchEvent(new Event("change"));
}

/** What the kernel tells when a checkpoint was saved. */
function offer(offers: Offer[]): void {
  const told = store.actions.map((each) =>
    each.name === "load_checkpoint" ? { ...each, offers: { path: offers } } : each,
  );
  actions.update({ ...store, actions: told }, 0);
}

test("harmless actions are done at once", () => {
  button("pause").click();
  button("save_checkpoint").click();
  expect(done).toEqual([
    ["pause", {}],
    ["save_checkpoint", {}],
  ]);
});

test("a dangerous one asks first, and can be left alone", () => {
  button("stop").click();
  expect(done).toEqual([]);
  expect(form().getAttribute("role")).toBe("alertdialog");
  form().dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  expect(actions.drawer.hidden).toBe(true);
  button("stop").click();
  form().requestSubmit();
  expect(done).toEqual([["stop", {}]]);
  expect(actions.drawer.hidden).toBe(true);
});

test("what can't be done is off, stays reachable and says why", () => {
  const evaluate = button("evaluate");
  evaluate.click();
  expect(done).toEqual([]);
  expect(evaluate.getAttribute("aria-disabled")).toBe("true");
  expect(evaluate.disabled).toBe(false);
  expect(evaluate.title).toContain("this loop can't evaluate");
});

test("pause and resume are one place", () => {
  expect([button("pause").hidden, button("resume").hidden]).toEqual([false, true]);
  actions.update({ ...store, head: { ...store.head, status: "paused" } }, 0);
  expect([button("pause").hidden, button("resume").hidden]).toEqual([true, false]);
  actions.pauseOrResume();
  expect(done).toEqual([["resume", {}]]);
});

test("a form has a field for each argument and sends their types", () => {
  menuItem("Load checkpoint").click();
  const [path, keep] = form().querySelectorAll("input");
  form().requestSubmit();
  expect(done).toEqual([]);
  expect(form().querySelector("[role=alert]")?.textContent).toBe("path: needed");
  choose("another…");
  (path as HTMLInputElement).value = "best";
  (keep as HTMLInputElement).checked = true;
  form().requestSubmit();
  expect(done).toEqual([["load_checkpoint", { path: "best", keep_knobs: true }]]);
});

test("saved checkpoints are there to choose from, and an argument has one field", () => {
  menuItem("Load checkpoint").click();
  const [path] = form().querySelectorAll("input");
  expect(form().textContent).not.toContain("tag");
  expect(labels()).toEqual(["–", "step 1,000, best, 483.7 kB", "step 500, 483.7 kB", "another…"]);
  expect(document.activeElement).toBe(form().querySelector("select"));
  expect((path as HTMLInputElement).hidden).toBe(true);
  choose("step 500, 483.7 kB");
  form().requestSubmit();
  expect(done).toEqual([["load_checkpoint", { path: "step-000500.pt", keep_knobs: false }]]);
});

test("the choices stay fresh while the form is open, and keep what was chosen", () => {
  menuItem("Load checkpoint").click();
  choose("step 500, 483.7 kB");
  offer([
    { value: "step-001500.pt", label: "step 1500" },
    { value: "step-000500.pt", label: "step 500, 483.7 kB" },
  ]);
  expect(labels()).toEqual(["–", "step 1500", "step 500, 483.7 kB", "another…"]);
  expect(form().querySelector("select")?.selectedOptions[0]?.text).toBe("step 500, 483.7 kB");
  offer([{ value: "step-001500.pt", label: "step 1500" }]);
  expect(form().querySelector("select")?.selectedOptions[0]?.text).toBe("–");
});

test("what was typed before there was anything to choose from stays", () => {
  offer([]);
  menuItem("Load checkpoint").click();
  const [path] = form().querySelectorAll("input");
  expect(form().querySelector("select")?.hidden).toBe(true);
  (path as HTMLInputElement).value = "/else/where.pt";
  offer([{ value: "step-001500.pt", label: "step 1500" }]);
  expect((path as HTMLInputElement).hidden).toBe(false);
  form().requestSubmit();
  expect(done).toEqual([["load_checkpoint", { path: "/else/where.pt", keep_knobs: false }]]);
});

test("every kind of argument has its field", () => {
  const schema: ActionSchema = {
    v: 2,
    name: "probe",
    description: "",
    dangerous: false,
    enabled: true,
    reason: null,
    also: {},
    offers: {},
    args: {
      $defs: { Color: { enum: ["red", "blue"], type: "string" } },
      properties: {
        count: { type: "integer" },
        rate: { type: "number", default: 2.5e-6 },
        color: { $ref: "#/$defs/Color" },
        which: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
        list: { type: "array", items: { type: "number" } },
        any: {},
      },
      required: ["count", "color", "list"],
    },
  };
  actions.update({ ...store, actions: [...store.actions, schema] }, 0);
  menuItem("Probe").click();
  const [count, rate, which, list, any] = form().querySelectorAll("input");
  const set = (input: HTMLInputElement | undefined, text: string) => {
    if (input !== undefined) input.value = text;
  };
  expect(rate?.value).toBe("2.5e-6");
  set(count, "1.5");
  set(list, "[1, 2]");
  form().requestSubmit();
  expect(form().querySelector("[role=alert]")?.textContent).toBe("count: not a whole number");
  set(count, "3");
  set(which, "");
  set(any, "plain text");
  const select = form().querySelector("select") as HTMLSelectElement;
  select.value = "blue";
  form().requestSubmit();
  expect(done).toEqual([
    ["probe", { count: 3, rate: 2.5e-6, color: "blue", list: [1, 2], any: "plain text" }],
  ]);
});

test("the menu goes by arrow keys and gives the focus back", () => {
  const more = document.querySelector(".it2-more") as HTMLButtonElement;
  more.click();
  expect(document.activeElement?.textContent).toContain("Load checkpoint");
  const press = (key: string) =>
    document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  press("ArrowDown");
  expect(document.activeElement?.textContent).toContain("Note");
  press("ArrowDown");
  expect(document.activeElement?.textContent).toContain("Load checkpoint");
  press("Escape");
  expect(document.activeElement).toBe(more);
  expect(more.getAttribute("aria-expanded")).toBe("false");
});

test("the result has its caveats, all of them in its title", () => {
  const text = `smooth 0.5 -> 0; ${"the data goes on where the loop is; ".repeat(20)}end`;
  const row = { ...(store.rows.at(-1) as Row), action: "goto", name: null, reason: null };
  actions.update({ ...store, said: { ...row, status: "applied", text } }, 0);
  expect(actions.said.textContent).toContain("goto: applied, smooth 0.5 -> 0; the data goes on");
  expect(actions.said.textContent?.length).toBeLessThan(320);
  expect(actions.said.title).toContain("; end, step");
});

test.each(["Undo", "Goto"])(
  "%s says where the steps since then stay, its ticks what they do",
  (what) => {
    const args = {
      properties: {
        knobs_only: { type: "boolean", default: false, description: "put back the knobs alone" },
      },
    };
    const schema = { ...(store.actions[0] as ActionSchema), dangerous: true, enabled: true, args };
    const given = { ...schema, name: what.toLowerCase(), offers: {}, also: {} };
    actions.update({ ...store, actions: [given] }, 0);
    menuItem(what).click();
    expect(form().querySelector("b")?.textContent).toContain(
      "The steps since then stay in the journal, on a branch of their own.",
    );
    expect(form().querySelector("label")?.textContent).toBe("put back the knobs alone");
    expect(form().querySelector("label")?.title).toBe("knobs_only");
  },
);

function having(part: Partial<ActionSchema>): void {
  const plain = { ...(store.actions[0] as ActionSchema), enabled: true, offers: {}, also: {} };
  actions.update({ ...store, actions: [{ ...plain, ...part }] }, 0);
}

test("of arguments that stand for each other one is needed, and none is called optional", () => {
  const args = {
    properties: {
      step: { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
      good: { type: "boolean", default: false, description: "the newest good state" },
    },
    anyOf: [{ required: ["step"] }, { required: ["good"], properties: { good: { const: true } } }],
  };
  having({ name: "goto", dangerous: true, args });
  menuItem("Goto").click();
  expect(form().textContent).not.toContain("optional");
  form().requestSubmit();
  expect(done).toEqual([]);
  expect(form().querySelector("[role=alert]")?.textContent).toBe(
    "step: needed, or: the newest good state",
  );
  const [step, good] = form().querySelectorAll("input");
  (good as HTMLInputElement).checked = true;
  form().requestSubmit();
  menuItem("Goto").click();
  const again = form().querySelector("input") as HTMLInputElement;
  expect(again).not.toBe(step);
  again.value = "3";
  form().requestSubmit();
  expect(done).toEqual([
    ["goto", { good: true }],
    ["goto", { step: 3, good: false }],
  ]);
});

test("the menu says what an action would be done to now", () => {
  having({ name: "undo", description: "Take the last intervention back" });
  having({ name: "undo", description: "Take the last intervention back: set_knob lr of step 7" });
  expect(menuItem("Undo").textContent).toContain("back: set_knob lr of step 7");
});

test("what takes no argument and does no harm is done at the first click", () => {
  having({ name: "list_checkpoints", dangerous: false, args: { properties: {} } });
  menuItem("List checkpoints").click();
  expect(done).toEqual([["list_checkpoints", {}]]);
  expect(actions.drawer.hidden).toBe(true);
  having({ name: "halt", dangerous: true, args: { properties: {} } });
  menuItem("Halt").click();
  expect(done).toHaveLength(1);
});

test("a rejection of before the end is dimmed when the run is over, one of afterwards is not", () => {
  const row = { ...(store.rows.at(-1) as Row), name: null, status: "rejected" as const };
  const over = { ...store.head, status: "finished" as const };
  actions.update({ ...store, said: row }, 0);
  expect(actions.said.dataset.old).toBeUndefined();
  actions.update({ ...store, said: row, head: over }, 0);
  expect(actions.said.dataset.old).toBe("");
  actions.update({ ...store, said: { ...row, seq: 99 }, head: over }, 0);
  expect(actions.said.dataset.old).toBeUndefined();
});

test("a button waits for its own result", () => {
  const ask = { id: "x", type: "pause", name: null, requested: null, sentAt: 0, received: false };
  const waiting = reduce(store, { kind: "asked", ask });
  actions.update(waiting, 0);
  expect(button("pause").textContent).toBe("Pause…");
  button("pause").click();
  expect(done).toEqual([]);
  actions.update(waiting, 2_000);
  expect(actions.said.textContent).toBe("pause: queued until the cell ends");
});
