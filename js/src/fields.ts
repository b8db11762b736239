/** The fields of an action's form, one for each argument, from its JSON schema. */

import { h, show } from "./dom";
import { parseNumber, valueText } from "./numbers";
import type { ActionSchema, Json, Offer } from "./wire";

/** Values of options: no offer can be taken for the one that lets people type. */
const VALUE = "=";
const TYPED = "…";

type Read = { value: Json | undefined } | { why: string };

export interface Field {
  name: string;
  element: HTMLElement;
  read(): Read;
  focus(): void;
  /** Renew what there is to choose from; what was chosen stays. */
  offer?(offers: Offer[]): void;
}

interface Schema {
  [key: string]: Json;
}

/** One field for each argument of an action, from its JSON schema. */
export function fieldsOf(schema: ActionSchema): Field[] {
  const properties = (schema.args.properties ?? {}) as { [name: string]: Schema };
  const required = (schema.args.required ?? []) as string[];
  const definitions = (schema.args.$defs ?? {}) as { [name: string]: Schema };
  // An argument has one field, whatever names it goes by.
  const own = Object.entries(properties).filter(([name]) => schema.also[name] === undefined);
  return own.map(([name, raw]) => {
    const { schema: plain, nullable } = resolve(raw, definitions);
    const offers = schema.offers[name];
    const needed = required.includes(name) && !nullable;
    const isOptional = !needed && !alternatives(schema).some((names) => names.includes(name));
    const words = isOptional ? `${name} (optional)` : name;
    return offers === undefined
      ? fieldOf(name, { ...raw, ...plain }, needed, words)
      : offeringField(name, { ...raw, ...plain }, needed, words, offers);
  });
}

/** What lacks of a payload of which one of several arguments is needed; null where nothing does. */
export function lackingOf(schema: ActionSchema, payload: { [key: string]: Json }): string | null {
  const ways = alternatives(schema);
  const isGiven = (name: string) => ![undefined, null, false].includes(payload[name] as null);
  if (ways.length === 0 || ways.some((names) => names.every(isGiven))) return null;
  const properties = (schema.args.properties ?? {}) as { [name: string]: Schema };
  const [first, ...others] = ways.map((names) => names.join(" and "));
  const said = others.map((name) => String(properties[name]?.description ?? name));
  return [`${first}: needed`, ...said].join(", or: ");
}

/** Names of arguments of which one group has to be given; none where each stands for itself. */
function alternatives(schema: ActionSchema): string[][] {
  const ways = (schema.args.anyOf ?? []) as { required?: string[] }[];
  return ways.map((each) => each.required ?? []);
}

function resolve(
  raw: Schema,
  definitions: { [name: string]: Schema },
): { schema: Schema; nullable: boolean } {
  if (typeof raw.$ref === "string") {
    const name = raw.$ref.split("/").at(-1) ?? "";
    return { schema: definitions[name] ?? {}, nullable: false };
  }
  const options = (raw.anyOf ?? []) as Schema[];
  const plain = options.find((each) => each.type !== "null");
  if (plain === undefined) return { schema: raw, nullable: false };
  return { schema: resolve(plain, definitions).schema, nullable: options.length > 1 };
}

function fieldOf(name: string, schema: Schema, required: boolean, words: string): Field {
  const label = h("label", { class: "it2-field", title: String(schema.description ?? "") });
  const preset = schema.default ?? null;
  if (schema.type === "boolean") {
    // A tick says yes to a sentence rather than to a name.
    label.title = name;
    label.append(h("span", { text: String(schema.description ?? name) }));
    const box = h("input", { type: "checkbox" });
    box.checked = preset === true;
    label.append(box);
    return { name, element: label, read: () => ({ value: box.checked }), focus: () => box.focus() };
  }
  label.append(h("span", { text: words }));
  if (Array.isArray(schema.enum) || schema.const !== undefined) {
    const choices = Array.isArray(schema.enum) ? schema.enum : [schema.const as Json];
    const select = h("select");
    if (!required && preset === null) select.append(h("option", { text: "–" }));
    const offset = select.options.length;
    for (const each of choices) {
      select.append(h("option", { text: typeof each === "string" ? each : valueText(each) }));
    }
    if (preset !== null) select.selectedIndex = offset + choices.indexOf(preset);
    label.append(select);
    return {
      name,
      element: label,
      read: () => ({ value: choices[select.selectedIndex - offset] }),
      focus: () => select.focus(),
    };
  }
  const input = textInput(preset);
  label.append(input);
  return {
    name,
    element: label,
    read: () => readText(input.value, schema, required),
    focus: () => input.focus(),
  };
}

/** What is there to choose from, and a field for whatever else. */
function offeringField(
  name: string,
  schema: Schema,
  required: boolean,
  words: string,
  first: Offer[],
): Field {
  const select = h("select", { "aria-label": words });
  const input = textInput(schema.default ?? null);
  input.setAttribute("aria-label", `${name}: another one`);
  const hint = String(schema.description ?? "");
  const element = h(
    "span",
    { class: "it2-field", title: hint },
    h("span", { text: words, "aria-hidden": "true" }),
    select,
    input,
  );
  let shown: string | null = null;
  const isTyped = () => select.value === TYPED;
  const offer = (offers: Offer[]) => {
    const key = JSON.stringify(offers);
    if (key === shown) return;
    // Where there was nothing to choose from, what was typed stays.
    const typed = select.hidden && input.value !== "";
    const chosen = typed ? TYPED : select.value;
    shown = key;
    select.replaceChildren(
      h("option", { value: "", text: "–" }),
      ...offers.map(({ value, label }) => h("option", { value: VALUE + value, text: label })),
      h("option", { value: TYPED, text: "another…" }),
    );
    select.value = chosen;
    if (select.selectedIndex < 0) select.value = "";
    show(select, offers.length > 0);
    show(input, offers.length === 0 || isTyped());
  };
  select.addEventListener("change", () => {
    show(input, isTyped());
    if (isTyped()) input.focus();
  });
  offer(first);
  return {
    name,
    element,
    offer,
    read() {
      if (select.hidden || isTyped()) return readText(input.value, schema, required);
      const chosen = select.value.slice(VALUE.length);
      return readText(chosen, { ...schema, type: "string" }, required);
    },
    focus: () => (select.hidden ? input : select).focus(),
  };
}

function textInput(preset: Json): HTMLInputElement {
  return h("input", {
    type: "text",
    value: preset === null ? "" : textOf(preset),
    spellcheck: "false",
  });
}

function textOf(value: Json): string {
  return typeof value === "string" ? value : valueText(value);
}

function readText(text: string, schema: Schema, required: boolean): Read {
  if (text.trim() === "") return required ? { why: "needed" } : { value: undefined };
  switch (schema.type) {
    case "string":
      return { value: text };
    case "integer":
    case "number": {
      const parsed = parseNumber(text, schema.type === "integer" ? "int" : "float");
      return parsed.ok ? { value: parsed.value } : { why: parsed.why };
    }
    default:
      try {
        return { value: JSON.parse(text) as Json };
      } catch {
        return schema.type === undefined ? { value: text } : { why: "not valid JSON" };
      }
  }
}
