/** The two comms of a panel, as little of them as is needed. */

import type { PanelMessage, PanelRequest } from "./wire";

/** What anywidget and ipywidgets call a model. */
export interface Model {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
  widget_manager?: { get_model(id: string): Promise<Model> };
  comm_live?: boolean;
}

export interface Port {
  send(request: PanelRequest): void;
  /** Returns the function that ends it. */
  listen(
    onMessage: (message: PanelMessage, data: Float64Array, raw: DataView[]) => void,
  ): () => void;
}

/**
 * Stream in, control out. Requests go over the control model because messages to the model that
 * the kernel publishes on wait for the end of a running cell on some kernels.
 */
export function portOf(stream: Model, control: Promise<Model>): Port {
  let out: Model | null = null;
  const early: PanelRequest[] = [];
  const ready = (model: Model) => {
    out = model;
    for (const request of early.splice(0)) model.send(request);
  };
  control.then(ready, () => ready(stream));
  return {
    send(request) {
      if (out === null) early.push(request);
      else out.send(request);
    },
    listen(onMessage) {
      const heard = (message: PanelMessage, buffers: DataView[] = []) => {
        onMessage(message, numbersOf(buffers[0]), buffers);
      };
      stream.on("msg:custom", heard);
      return () => stream.off("msg:custom", heard);
    },
  };
}

const NONE = new Float64Array(0);

/** A buffer's float64 numbers. They are copied: a view into the message may not be aligned. */
export function numbersOf(buffer: DataView | undefined): Float64Array {
  if (buffer === undefined || buffer.byteLength % 8 !== 0) return NONE;
  const bytes = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  return new Float64Array(bytes.slice().buffer);
}
