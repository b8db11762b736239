/** What drawing may cost: a share of the page's main thread, with a little saved for a start. */

/** Share of the page's main thread that drawing may take. */
const SHARE = 0.05;
/** What may be spent at once after a rest. */
const SAVED_MS = 150;
const MOST_DEBT_MS = 100;

export class Purse {
  #ms = SAVED_MS;
  #earnedAt = performance.now();

  /** Milliseconds until something may be spent again; 0 where there is something now. */
  waitMs(now: number): number {
    this.#earn(now);
    return this.#ms > 0 ? 0 : -this.#ms / SHARE;
  }

  get isEmpty(): boolean {
    return this.#ms <= 0;
  }

  fill(): void {
    this.#ms = SAVED_MS;
  }

  /** Pay for what began at this time and has ended now. */
  pay(began: number): void {
    const now = performance.now();
    this.#earn(now);
    // A slow machine still sees a curve now and then.
    this.#ms = Math.max(-MOST_DEBT_MS, this.#ms - (now - began));
  }

  #earn(now: number): void {
    this.#ms = Math.min(SAVED_MS, this.#ms + (now - this.#earnedAt) * SHARE);
    this.#earnedAt = now;
  }
}
