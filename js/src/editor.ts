/** What every knob's control can do, and what it does with what a hand asks. */

import { setAttribute } from "./dom";
import type { Ask } from "./store";
import type { Json, KnobView } from "./wire";

export interface Hands {
  commit(value: Json): void;
  refuse(asked: Json, why: string): void;
  edited(): void;
  /** The value in force was asked for, or none: nothing is to be done. */
  keep(): void;
}

export interface Editor {
  readonly kind: string;
  readonly elements: HTMLElement[];
  /** Show the value, unless a hand is on the control or its request is on the way. */
  update(view: KnobView, ask: Ask | null): void;
  revert(view: KnobView): void;
  enable(enabled: boolean, why: string): void;
}

export function enableInput(
  input: HTMLInputElement | HTMLSelectElement,
  enabled: boolean,
  why: string,
): void {
  input.disabled = !enabled;
  setAttribute(input, "title", enabled ? null : why);
}
