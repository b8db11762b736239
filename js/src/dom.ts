/** Elements from plain data. Text is always text: nothing here parses HTML. */

type Listener = (event: Event) => void;

export interface Attributes {
  class?: string;
  text?: string;
  on?: { [event: string]: Listener };
  [attribute: string]: string | number | boolean | null | undefined | { [event: string]: Listener };
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string | null)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value as { [event: string]: Listener })) {
        element.addEventListener(event, listener);
      }
    } else if (name === "text") element.textContent = String(value);
    else if (name === "class") element.className = String(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/** Set an element's text, if it differs: an untouched node costs no layout. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute, if it differs. */
export function setAttribute(element: Element, name: string, value: string | null): void {
  if (value === null) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Show or hide an element. */
export function show(element: HTMLElement, shown: boolean): void {
  if (element.hidden === shown) element.hidden = !shown;
}
