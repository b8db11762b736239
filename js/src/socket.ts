/** The channel of a panel over one WebSocket, which is opened again when it breaks. */

import { type Model, numbersOf, type Port } from "./port";
import type { PanelMessage, PanelRequest } from "./wire";

const AGAIN_MS = [100, 250, 500, 1_000, 2_000] as const;

type Listener = (message: PanelMessage, data: Float64Array, raw: DataView[]) => void;

export class Socket implements Port {
  /** Called whenever the connection is there, first and after a break. */
  onOpen: () => void = () => undefined;
  #url: string;
  #socket: WebSocket | null = null;
  #listeners = new Set<Listener>();
  #watchers = new Set<() => void>();
  #tries = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(url: string) {
    this.#url = url;
    this.#open();
  }

  get connected(): boolean {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** What is sent without a connection is lost; the panel shows that nothing has arrived. */
  send(request: PanelRequest): void {
    if (this.connected) this.#socket?.send(JSON.stringify(request));
  }

  listen(onMessage: Listener): () => void {
    this.#listeners.add(onMessage);
    return () => this.#listeners.delete(onMessage);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  /** As much of a widget's model as tells whether there is a connection. */
  get model(): Model {
    const socket = this;
    return {
      get: () => undefined,
      send: (content) => socket.send(content as PanelRequest),
      on: (_, callback) => socket.#watchers.add(callback as () => void),
      off: (_, callback) => socket.#watchers.delete(callback as () => void),
      get comm_live() {
        return socket.connected;
      },
    };
  }

  #open(): void {
    const socket = new WebSocket(this.#url);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.addEventListener("open", () => {
      this.#tries = 0;
      this.#tell();
      this.onOpen();
    });
    socket.addEventListener("message", (event: MessageEvent<ArrayBuffer>) => {
      const { message, buffer } = unpack(event.data);
      const data = numbersOf(buffer ?? undefined);
      for (const hear of this.#listeners) hear(message, data, buffer === null ? [] : [buffer]);
    });
    socket.addEventListener("close", () => {
      this.#tell();
      if (this.#closed) return;
      const wait = AGAIN_MS[Math.min(this.#tries, AGAIN_MS.length - 1)];
      this.#tries += 1;
      this.#timer = setTimeout(() => this.#open(), wait);
    });
  }

  #tell(): void {
    for (const watch of this.#watchers) watch();
  }
}

/** A frame: length of the JSON text, the text padded to a multiple of 8, the buffer. */
export function unpack(frame: ArrayBuffer): { message: PanelMessage; buffer: DataView | null } {
  const length = new DataView(frame).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(frame, 4, length));
  const at = 4 + length;
  return {
    message: JSON.parse(text) as PanelMessage,
    buffer: at < frame.byteLength ? new DataView(frame, at) : null,
  };
}
