import { describe, expect, test } from "vitest";
import {
  brief,
  clock,
  exact,
  grouped,
  latestText,
  parseNumber,
  rate,
  saidText,
  valueText,
} from "../src/numbers";

describe("parseNumber", () => {
  test.each([
    ["2.5e-6", 2.5e-6],
    [" 3e-4 ", 3e-4],
    [".5", 0.5],
    ["5.", 5],
    ["-1E+2", -100],
    ["−3", -3],
    ["0.1", 0.1],
  ])("%s is exact", (text, value) => {
    expect(parseNumber(text, "float")).toEqual({ ok: true, value });
  });

  test.each(["0,001", "1e-", "", "abc", "nan", "Infinity", "0x10", "1 000", "1e", "--1", "1_0"])(
    "%s is no number",
    (text) => {
      expect(parseNumber(text, "float")).toEqual({ ok: false, why: "not a number" });
    },
  );

  test("what no double holds is refused", () => {
    expect(parseNumber("1e999", "float")).toEqual({ ok: false, why: "too large for a number" });
    expect(parseNumber("9007199254740993", "int")).toMatchObject({ ok: false });
    const part = { ok: false, why: "not a whole number", value: 1.5 };
    expect(parseNumber("1.5", "int")).toEqual(part);
    expect(parseNumber("64", "int")).toEqual({ ok: true, value: 64 });
  });
});

test("what is shown reads back as the very same double", () => {
  let seed = 1;
  const random = () => {
    seed = (seed * 16_807) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  for (let i = 0; i < 2_000; i++) {
    const value = (random() - 0.5) * 10 ** (random() * 60 - 30);
    const back = parseNumber(exact(value), "float");
    expect(back).toEqual({ ok: true, value });
  }
});

test("numbers read well", () => {
  expect([3e-5, 0.001, 2.5e-6, 1, 1e7, 0, -0.25, 1e-300].map(exact)).toEqual([
    "3e-5",
    "0.001",
    "2.5e-6",
    "1",
    "1e7",
    "0",
    "-0.25",
    "1e-300",
  ]);
  expect([0.27134, 1234, 1e-5, 123456.7, Number.NaN, -Infinity, 0].map(brief)).toEqual([
    "0.2713",
    "1,234",
    "1e-5",
    "1.23e5",
    "nan",
    "-inf",
    "0",
  ]);
  expect(grouped(1234567)).toBe("1,234,567");
  expect([6.9, 760, 11_232].map(clock)).toEqual(["0:06", "12:40", "3:07:12"]);
  expect([212.4, 3.21, 0.5, 0].map(rate)).toEqual(["212 steps/s", "3.21 steps/s", "2 s/step", ""]);
  expect([true, "a<b", null, 2.5e-6].map(valueText)).toEqual(["on", '"a<b"', "–", "2.5e-6"]);
  expect(latestText({ v: 2, step: 1, value: null, nonfinite: "inf" })).toBe("inf");
});

test("a number in a sentence has the digits that a reader has a use for", () => {
  const said = [0.013499999999999998, 0.1 + 0.2, 2.4999999999999998e-6, 0.123456789012345];
  expect(said.map(saidText)).toEqual(["0.0135", "0.3", "2.5e-6", "0.123456789012"]);
  expect([1, 1_234_567_890_123, "0.1", null, true].map(saidText)).toEqual([
    "1",
    "1.234567890123e12",
    '"0.1"',
    "–",
    "on",
  ]);
});
