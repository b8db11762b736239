/** Buttons for what a run is asked most, a menu with forms for the rest. */

import { h, setAttribute, setText, show } from "./dom";
import { type Field, fieldsOf, lackingOf } from "./fields";
import { type Place, WORDS } from "./place";
import { type Ask, isOver, type Store } from "./store";
import type { ActionSchema, Json, Row } from "./wire";
import { actionSaid, QUIET_MS, type Said } from "./words";

export type Do = (type: string, payload: { [key: string]: Json }) => void;

interface Button {
  action: string;
  label: string;
  key?: string;
}

const BUTTONS: Button[] = [
  { action: "pause", label: "Pause", key: "p" },
  { action: "resume", label: "Resume", key: "p" },
  { action: "evaluate", label: "Evaluate", key: "e" },
  { action: "save_checkpoint", label: "Save", key: "s" },
  { action: "stop", label: "Stop" },
];
/** Not in the menu: they have controls of their own. */
const ELSEWHERE = new Set([...BUTTONS.map((each) => each.action), "set_knob", "set_mode", "batch"]);

export class Actions {
  readonly buttons = h("div", { class: "it2-btns", role: "toolbar", "aria-label": "Actions" });
  readonly drawer = h("div", { class: "it2-drawer" });
  readonly said = h("div", { class: "it2-said it2-action-said", role: "status" });

  #buttons = new Map<string, HTMLButtonElement>();
  #more = h("button", {
    type: "button",
    class: "it2-more",
    "aria-label": "More actions",
    title: "More actions",
    "aria-haspopup": "true",
    "aria-expanded": "false",
    text: "⋯",
  });
  #menu = h("div", { class: "it2-menu", role: "menu", "aria-label": "More actions" });
  #menuKey = "";
  #schemas: ActionSchema[] = [];
  /** The action whose form is open, and its fields. */
  #form: { action: string; fields: Field[] } | null = null;

  /** What was said last while the run went on; undefined before anything was. */
  #saidBefore: Row | null | undefined;

  constructor(
    private readonly act: Do,
    signal: AbortSignal,
  ) {
    for (const { action, label, key } of BUTTONS) {
      const button = h("button", { type: "button", class: `it2-do-${action}`, text: label });
      button.dataset.action = action;
      if (key !== undefined) button.setAttribute("aria-keyshortcuts", key);
      button.addEventListener("click", () => this.press(action), { signal });
      this.#buttons.set(action, button);
      this.buttons.append(button);
    }
    this.#more.addEventListener("click", () => this.#toggleMenu(), { signal });
    this.buttons.append(this.#more);
    this.#menu.addEventListener("keydown", (event) => this.#menuKeys(event), { signal });
    show(this.drawer, false);
    show(this.#menu, false);
    show(this.said, false);
  }

  get menu(): HTMLElement {
    return this.#menu;
  }

  update(store: Store, now: number): void {
    this.#schemas = store.actions;
    const paused = store.head.status === "paused";
    for (const { action, label, key } of BUTTONS) {
      const button = this.#buttons.get(action) as HTMLButtonElement;
      const schema = store.actions.find((each) => each.name === action);
      const ask = Object.values(store.asks).find((each) => each.type === action);
      const turn = action === "resume" ? paused : action !== "pause" || !paused;
      show(button, turn && schema !== undefined);
      if (schema === undefined) continue;
      const why = !store.connected ? WORDS[store.place].off : schema.enabled ? null : schema.reason;
      const off = !store.connected || !schema.enabled || ask !== undefined;
      // Not `disabled`: a button that says why it is off has to be reachable by keyboard.
      setAttribute(button, "aria-disabled", off ? "true" : null);
      setAttribute(button, "aria-busy", ask === undefined ? null : "true");
      const hint = key === undefined ? schema.description : `${schema.description} (${key})`;
      setAttribute(button, "title", why ?? hint);
      setText(button, ask === undefined ? label : `${label}…`);
    }
    this.#updateMenu(store);
    this.#updateForm();
    this.#updateSaid(store, now);
  }

  /** Do an action by its button: dangerous ones ask, those with required arguments show a form. */
  press(action: string): void {
    const schema = this.#schemas.find((each) => each.name === action);
    const button = this.#buttons.get(action);
    if (schema === undefined || button?.getAttribute("aria-disabled") === "true") return;
    if (schema.dangerous) this.#open(schema, button ?? this.#more, []);
    else this.act(action, {});
  }

  pauseOrResume(): void {
    for (const action of ["pause", "resume"]) {
      const button = this.#buttons.get(action);
      if (button !== undefined && !button.hidden) {
        this.press(action);
        return;
      }
    }
  }

  close(): boolean {
    const open = !this.drawer.hidden || !this.#menu.hidden;
    show(this.drawer, false);
    this.#showMenu(false);
    return open;
  }

  #updateSaid(store: Store, now: number): void {
    const ask = Object.values(store.asks).find(
      (each) => each.name === null && now - each.sentAt > QUIET_MS,
    );
    const said: Said | null =
      ask !== undefined
        ? waits(ask, store.place)
        : store.said === null
          ? null
          : actionSaid(store.said);
    setText(this.said, said?.text ?? "");
    setAttribute(this.said, "title", said?.exact ?? null);
    setAttribute(this.said, "data-tone", said?.tone ?? null);
    if (!isOver(store) || this.#saidBefore === undefined) this.#saidBefore = store.said;
    const isOld = isOver(store) && ask === undefined && store.said === this.#saidBefore;
    setAttribute(this.said, "data-old", isOld ? "" : null);
    show(this.said, said !== null);
  }

  // ------------------------------------------------------------------------------- menu

  #updateMenu(store: Store): void {
    const shown = store.actions.filter((each) => !ELSEWHERE.has(each.name));
    const key = JSON.stringify(
      shown.map(({ name, enabled, reason, description }) => [name, enabled, reason, description]),
    );
    show(this.#more, shown.length > 0);
    if (key === this.#menuKey) return;
    this.#menuKey = key;
    this.#menu.replaceChildren(
      ...shown.map((schema) => {
        const item = h("button", {
          type: "button",
          role: "menuitem",
          tabindex: -1,
          title: schema.enabled ? schema.description : (schema.reason ?? ""),
          "aria-disabled": schema.enabled ? null : "true",
          on: {
            click: () => {
              if (!schema.enabled) return;
              this.#showMenu(false);
              // The menu stays while what there is to choose from changes.
              const now = this.#schemas.find((each) => each.name === schema.name) ?? schema;
              const fields = fieldsOf(now);
              if (fields.length > 0 || now.dangerous) this.#open(now, this.#more, fields);
              else {
                this.act(now.name, {});
                this.#more.focus();
              }
            },
          },
        });
        item.append(h("span", { text: title(schema.name) }));
        const remark = schema.enabled ? schema.description : (schema.reason ?? "");
        item.append(h("span", { class: "it2-faint", text: remark }));
        return item;
      }),
    );
  }

  #toggleMenu(): void {
    const open = this.#menu.hidden;
    show(this.drawer, false);
    this.#showMenu(open);
    if (open) (this.#menu.querySelector("button") as HTMLButtonElement | null)?.focus();
  }

  #showMenu(open: boolean): void {
    show(this.#menu, open);
    this.#more.setAttribute("aria-expanded", String(open));
  }

  #menuKeys(event: KeyboardEvent): void {
    const items = [...this.#menu.querySelectorAll("button")];
    const at = items.indexOf(document.activeElement as HTMLButtonElement);
    const to: { [key: string]: number } = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      Home: 0,
      End: items.length - 1,
    };
    const next = to[event.key];
    if (next !== undefined) items.at(next % items.length)?.focus();
    else if (event.key === "Escape" || event.key === "Tab") {
      this.#showMenu(false);
      if (event.key === "Escape") this.#more.focus();
    } else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  }

  // ------------------------------------------------------------------------------ drawer

  /** What there is to choose from changes while somebody chooses. */
  #updateForm(): void {
    if (this.#form === null || this.drawer.hidden) return;
    const { action, fields } = this.#form;
    const schema = this.#schemas.find((each) => each.name === action);
    for (const field of fields) field.offer?.(schema?.offers[field.name] ?? []);
  }

  /** Ask before it is done, with a field for each argument. */
  #open(schema: ActionSchema, origin: HTMLElement, fields: Field[]): void {
    const close = () => {
      show(this.drawer, false);
      origin.focus();
    };
    const wrong = h("span", { class: "it2-wrong", role: "alert" });
    const form = h("form", {
      class: "it2-form",
      role: schema.dangerous ? "alertdialog" : "group",
      "aria-label": title(schema.name),
      novalidate: true,
    });
    const go = h("button", {
      type: "submit",
      class: schema.dangerous ? "it2-danger" : "it2-primary",
      text: title(schema.name),
    });
    const question = schema.dangerous
      ? `${title(schema.name)}? ${DANGER[schema.name] ?? ""}`
      : title(schema.name);
    form.append(
      h("b", { text: question.trim() }),
      h("span", { class: "it2-dim", text: schema.description }),
      ...fields.map((field) => field.element),
      wrong,
      go,
      h("button", { type: "button", text: "Cancel", on: { click: close } }),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const payload: { [key: string]: Json } = {};
      for (const field of fields) {
        const read = field.read();
        if ("why" in read) {
          setText(wrong, `${field.name}: ${read.why}`);
          field.focus();
          return;
        }
        if (read.value !== undefined) payload[field.name] = read.value;
      }
      const lacks = lackingOf(schema, payload);
      if (lacks !== null) {
        setText(wrong, lacks);
        fields[0]?.focus();
        return;
      }
      close();
      this.act(schema.name, payload);
    });
    form.addEventListener("keydown", (event) => {
      // JupyterLab swallows the key press by which a browser would send the form.
      if (event.key === "Enter" && event.target instanceof HTMLInputElement && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
      if (event.key !== "Escape") return;
      close();
      event.stopPropagation();
    });
    this.drawer.replaceChildren(form);
    this.#form = { action: schema.name, fields };
    show(this.drawer, true);
    const first = fields[0];
    if (first !== undefined) first.focus();
    else go.focus();
  }
}

const DANGER: { [action: string]: string } = {
  stop: "No step happens after it, and a stopped run can't go on.",
  load_checkpoint: "The steps since then stay in the journal, on a branch of their own.",
  undo:
    "The run goes back to before the last intervention. " +
    "The steps since then stay in the journal, on a branch of their own.",
  goto:
    "The run goes back to that step or the nearest before it that was kept. " +
    "The steps since then stay in the journal, on a branch of their own.",
  reset_module: "Its weights are drawn anew.",
};

function waits(ask: Ask, place: Place): { tone: "wait"; text: string } {
  const action = ask.type.replaceAll("_", " ");
  return {
    tone: "wait",
    text: `${action}: ${ask.received ? "waits for the next step" : WORDS[place].queuedShort}`,
  };
}

/** `save_checkpoint` as people write it. */
export function title(name: string): string {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
