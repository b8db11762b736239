/** Where the panel stands, and what it says there when nobody answers. */

export type Place = "notebook" | "page";

interface Words {
  /** Before the first snapshot, at once and after a while. */
  waiting: string;
  late: string;
  chart: string;
  gone: string;
  /** Why nothing can be asked for then. */
  off: string;
  silent(since: string): string;
  queued(count: number): string;
  queuedShort: string;
}

export const WORDS: { [place in Place]: Words } = {
  notebook: {
    waiting: "Waiting for the kernel…",
    late:
      "Waiting for the kernel. When a cell is running, the panel comes when it ends; where no " +
      "kernel is connected, the picture below shows the last state.",
    chart: "Waiting for the kernel: the chart library comes when the cell ends.",
    gone:
      "The kernel is gone: what you see is the last state. " +
      "Run `%load_ext it2nb` and the cells above it, then the cell again.",
    off: "the kernel is gone",
    silent: (since) => `No word from the kernel for ${since}.`,
    queued: (count) =>
      `${count === 1 ? "A request is" : `${count} requests are`} queued until the cell ends: ` +
      "this kernel takes no messages while a cell runs. From a thread or the next cell:",
    queuedShort: "queued until the cell ends",
  },
  page: {
    waiting: "Connecting to the run…",
    late: "No answer from the run's server so far. This page goes on trying.",
    chart: "Waiting for the server to send the chart library.",
    gone:
      "The run's server does not answer: what you see is the last state. This page connects " +
      "again by itself; when the run's process has ended, its journal has the rest.",
    off: "the run's server does not answer",
    silent: (since) => `No word from the run's server for ${since}.`,
    queued: (count) =>
      `${count === 1 ? "A request is" : `${count} requests are`} not confirmed by the run's ` +
      "server yet. In the run's own process:",
    queuedShort: "not confirmed yet",
  },
};
