// @vitest-environment jsdom
import { expect, test } from "vitest";
import { OutputView } from "../src/output";
import type { OutputLine } from "../src/wire";

const line = (number: number, text: string, look = ""): OutputLine => ({
  line: number,
  text,
  look,
});

function view() {
  const over = new AbortController();
  const output = new OutputView(over.signal);
  document.body.append(output.element);
  const open = () => {
    output.element.open = true;
    output.element.dispatchEvent(new Event("toggle"));
  };
  const lines = () => [...output.element.querySelectorAll(".it2-line")];
  return { output, open, lines, summary: () => output.element.querySelector("summary") };
}

test("there is no section before something was printed; closed, it tells the newest line", () => {
  const { output, lines, summary } = view();
  output.update([]);
  expect(output.element.hidden).toBe(true);
  output.update([line(0, "epoch 1"), line(1, "12 %"), line(2, "")]);
  expect([output.element.hidden, output.element.open]).toEqual([false, false]);
  expect(summary()?.textContent).toBe("Output12 %2 lines");
  expect(lines()).toEqual([]);
});

test("a line that changes is changed in place, and the others are left alone", () => {
  const { output, open, lines } = view();
  const first = line(0, "epoch 1");
  output.update([first, line(1, "12 %")]);
  open();
  const [before, bar] = lines();
  output.update([first, line(1, "13 %"), line(2, "done")]);
  expect(lines()[0]).toBe(before);
  expect(lines()[1]).toBe(bar);
  expect(lines().map((each) => each.textContent)).toEqual(["epoch 1", "13 %", "done"]);
  output.update([line(1, "13 %"), line(3, "later")]);
  expect(lines().map((each) => each.textContent)).toEqual(["13 %", "later"]);
  expect(lines()[1]?.classList.contains("it2-after-gap")).toBe(true);
  output.update([line(1, "13 %"), line(2, "done"), line(3, "later")]);
  expect(lines().map((each) => each.textContent)).toEqual(["13 %", "done", "later"]);
  expect(lines()[2]?.classList.contains("it2-after-gap")).toBe(false);
});

test("text is text, with the colours that the terminal gave it", () => {
  const { output, open, lines } = view();
  output.update([line(0, "<img src=x> &amp;"), line(1, "ok 🎉 bad", "aaaaaBBB")]);
  open();
  expect(output.element.querySelector("img")).toBeNull();
  expect(lines()[0]?.textContent).toBe("<img src=x> &amp;");
  const parts = [...(lines()[1]?.children ?? [])] as HTMLElement[];
  expect(parts.map((each) => [each.textContent, each.dataset.color ?? ""])).toEqual([
    ["ok 🎉 ", ""],
    ["bad", "b"],
  ]);
  expect(parts[1]?.dataset.bold).toBe("");
});
