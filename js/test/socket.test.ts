import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Socket, unpack } from "../src/socket";
import type { PanelMessage } from "../src/wire";

/** A frame as it2nb/server/pages.py writes it. */
function frame(message: object, numbers: number[] = []): ArrayBuffer {
  let text = JSON.stringify(message);
  text += " ".repeat((8 - ((text.length + 4) % 8)) % 8);
  const bytes = new Uint8Array(4 + text.length + 8 * numbers.length);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(new TextEncoder().encode(text), 4);
  bytes.set(new Uint8Array(new Float64Array(numbers).buffer), 4 + text.length);
  return bytes.buffer;
}

class FakeWebSocket extends EventTarget {
  static readonly OPEN = 1;
  static made: FakeWebSocket[] = [];
  readyState = 0;
  binaryType = "blob";
  sent: string[] = [];
  constructor(readonly url: string) {
    super();
    FakeWebSocket.made.push(this);
  }
  send(text: string): void {
    this.sent.push(text);
  }
  close(): void {
    this.end();
  }
  begin(): void {
    this.readyState = FakeWebSocket.OPEN;
    this.dispatchEvent(new Event("open"));
  }
  end(): void {
    this.readyState = 3;
    this.dispatchEvent(new Event("close"));
  }
  hear(data: ArrayBuffer): void {
    this.dispatchEvent(new MessageEvent("message", { data }));
  }
}

function newest(): FakeWebSocket {
  const socket = FakeWebSocket.made.at(-1);
  if (socket === undefined) throw new Error("no socket was opened");
  return socket;
}

beforeEach(() => {
  vi.useFakeTimers();
  FakeWebSocket.made = [];
  vi.stubGlobal("WebSocket", FakeWebSocket);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a frame is taken apart, with and without numbers", () => {
  const plain = unpack(frame({ kind: "heartbeat", n: 3, v: 2 }));
  expect(plain.message).toEqual({ kind: "heartbeat", n: 3, v: 2 });
  expect(plain.buffer).toBeNull();
  const { buffer } = unpack(frame({ kind: "batch" }, [1.5, Number.NaN]));
  expect(buffer?.getFloat64(0, true)).toBe(1.5);
  expect(buffer?.getFloat64(8, true)).toBeNaN();
});

test("listeners get the message and its numbers, until they leave", () => {
  const port = new Socket("ws://here/panel");
  const heard: [PanelMessage, number[]][] = [];
  const stop = port.listen((message, data) => heard.push([message, [...data]]));
  newest().begin();
  newest().hear(frame({ kind: "batch", n: 1 }, [0.25]));
  expect(heard).toEqual([[{ kind: "batch", n: 1 }, [0.25]]]);
  stop();
  newest().hear(frame({ kind: "batch", n: 2 }));
  expect(heard).toHaveLength(1);
});

test("a connection that breaks is opened again, more and more slowly, and told of", () => {
  const port = new Socket("ws://here/panel");
  const opened = vi.fn();
  const told: boolean[] = [];
  port.onOpen = opened;
  const model = port.model;
  model.on("comm_live_update", () => told.push(model.comm_live === true));
  newest().begin();
  newest().end();
  expect(told).toEqual([true, false]);
  for (const wait of [100, 250, 500]) {
    const before = FakeWebSocket.made.length;
    vi.advanceTimersByTime(wait - 1);
    expect(FakeWebSocket.made).toHaveLength(before);
    vi.advanceTimersByTime(1);
    expect(FakeWebSocket.made).toHaveLength(before + 1);
    newest().end();
  }
  vi.advanceTimersByTime(1_000);
  newest().begin();
  expect(opened).toHaveBeenCalledTimes(2);
  expect(told.at(-1)).toBe(true);
});

test("nothing is sent without a connection, and nothing opened after the end", () => {
  const port = new Socket("ws://here/panel");
  port.send({ v: 2, kind: "bye", client: "me" });
  expect(newest().sent).toEqual([]);
  newest().begin();
  port.send({ v: 2, kind: "bye", client: "me" });
  expect(newest().sent).toEqual(['{"v":2,"kind":"bye","client":"me"}']);
  port.close();
  vi.advanceTimersByTime(60_000);
  expect(FakeWebSocket.made).toHaveLength(1);
});
