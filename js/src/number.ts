/** The control of a number: a slider and a field that holds the exact value. */

import { h, setAttribute, setText } from "./dom";
import { type Editor, enableInput, type Hands } from "./editor";
import { exact, parseNumber, saidText } from "./numbers";
import type { Ask } from "./store";
import { type Track, trackOf } from "./track";
import type { Json, KnobView } from "./wire";

/** Key presses on a slider are one gesture until they rest for this long. */
const KEY_REST_MS = 350;
/** Characters that the number field has room for. */
const FITS = 10;

export function numberEditor(first: KnobView, dtype: "float" | "int", hands: Hands): Editor {
  const slider = h("input", { type: "range", class: "it2-slider", "aria-label": first.name });
  const field = h("input", {
    type: "text",
    class: "it2-number",
    inputmode: dtype === "int" ? "numeric" : "decimal",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": `${first.name}: value`,
  });
  const cover = h("span", { class: "it2-cover", "aria-hidden": "true" });
  const box = h("div", { class: "it2-number-box" }, field, cover);
  let view = first;
  let track: Track | null = null;
  /** A pointer holds the thumb, or keys move it: nothing from the kernel moves it meanwhile. */
  let held = false;
  let keyTimer: ReturnType<typeof setTimeout> | undefined;
  let pointer = false;
  let typing = false;
  /**
   * A hand is in the field and has typed nothing yet: text that the kernel changed now would be
   * taken for a part of what the hand types next, "0.0029" and "2e-3" for 0.00292e-3.
   */
  let aiming = false;
  let refused = false;
  let asked: Ask | null = null;

  const write = (number: number | null) => {
    field.value = number === null ? "" : exact(number);
    // The field holds the exact value; at rest a long one is covered by a short form.
    const long = number !== null && field.value.length > FITS;
    setText(cover, long ? short(number) : "");
    setAttribute(field, "data-long", long ? "" : null);
    setAttribute(box, "title", long ? field.value : null);
  };
  const showValue = (value: Json) => {
    const number = typeof value === "number" ? value : null;
    write(number);
    if (track !== null && number !== null) slider.value = String(track.tickOf(number));
    setAttribute(slider, "aria-valuetext", number === null ? "no number" : spoken(view, number));
  };
  const valid = (good: boolean) => {
    refused = !good;
    setAttribute(field, "aria-invalid", good ? null : "true");
  };
  const release = () => {
    clearTimeout(keyTimer);
    held = false;
    if (track === null) return;
    hands.commit(track.valueAt(Number(slider.value)));
  };
  slider.addEventListener("pointerdown", () => {
    pointer = true;
  });
  slider.addEventListener("input", () => {
    held = true;
    typing = false;
    valid(true);
    hands.edited();
    if (track === null) return;
    const value = track.valueAt(Number(slider.value));
    write(value);
    setAttribute(slider, "aria-valuetext", spoken(view, value));
  });
  slider.addEventListener("change", () => {
    if (!held) return;
    if (pointer) {
      pointer = false;
      release();
      return;
    }
    // Each key press ends in a change event: wait until the hand rests.
    clearTimeout(keyTimer);
    keyTimer = setTimeout(release, KEY_REST_MS);
  });
  for (const event of ["pointerup", "pointercancel"]) {
    // The change event that ends a drag comes after the pointer's own.
    slider.addEventListener(event, () => setTimeout(() => (pointer = false), 0));
  }
  slider.addEventListener("blur", () => {
    if (held) release();
  });
  slider.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !held) return;
    clearTimeout(keyTimer);
    held = false;
    showValue(view.value);
    event.stopPropagation();
  });
  for (const event of ["focus", "pointerdown", "select"]) {
    field.addEventListener(event, () => (aiming = true));
  }
  field.addEventListener("blur", () => (aiming = false));
  field.addEventListener("input", () => {
    typing = true;
    setText(cover, "");
    setAttribute(field, "data-long", null);
    hands.edited();
    valid(isEmpty() || parseNumber(field.value, dtype).ok);
  });
  const isEmpty = () => field.value.trim() === "";
  const back = () => {
    valid(true);
    showValue(view.value);
    hands.keep();
  };
  const enter = () => {
    aiming = false;
    if (!typing) return;
    typing = false;
    if (isEmpty()) {
      back();
      return;
    }
    const text = field.value;
    const parsed = parseNumber(text, dtype);
    if (parsed.ok) {
      valid(true);
      if (parsed.value === view.value && asked === null) back();
      else hands.commit(parsed.value);
    } else {
      showValue(view.value);
      valid(false);
      hands.refuse(parsed.value ?? text, parsed.why);
    }
  };
  field.addEventListener("change", enter);
  field.addEventListener("pointerdown", () => setAttribute(field, "data-rest", null));
  field.addEventListener("keydown", (event) => {
    // After Enter the value is read, not edited, until a hand is on it again.
    setAttribute(field, "data-rest", event.key === "Enter" ? "" : null);
    if (event.key === "Enter") enter();
    if (event.key !== "Escape") return;
    aiming = false;
    typing = false;
    valid(true);
    showValue(view.value);
    event.stopPropagation();
  });
  return {
    kind: "number",
    elements: [slider, box],
    update(now, ask) {
      const bounds = track === null || now.min !== view.min || now.max !== view.max;
      view = now;
      asked = ask;
      if (bounds) {
        track = trackOf(now);
        slider.style.visibility = track === null ? "hidden" : "";
        if (track !== null) slider.max = String(track.ticks);
      }
      if (held || typing || aiming) return;
      const waits = ask !== null && typeof ask.requested === "number" && !refused;
      showValue(waits ? (ask as Ask).requested : now.value);
    },
    revert(now) {
      held = false;
      typing = false;
      showValue(now.value);
    },
    enable(enabled, why) {
      enableInput(slider, enabled, why);
      enableInput(field, enabled, why);
    },
  };
}

/** Five digits: "-1.2346e-4" is what fits into the field. */
function short(value: number): string {
  return exact(Number(value.toPrecision(5)));
}

function spoken(view: KnobView, value: number): string {
  const said = saidText(value);
  return view.unit ? `${said} ${view.unit}` : said;
}
