/** Which stretches of the curves are the past of the branch that the run is on. */

import type { Line } from "./series";
import type { Store } from "./store";
import type { Branch } from "./wire";

export interface Stretch {
  line: Line;
  /** Whether the run's own line goes through it; else it was abandoned. */
  live: boolean;
  /** Its points: the first one, and the one after the last. */
  from: number;
  to: number;
}

/** The branch and those that it came from, each with its last step in that line. */
export function lineage(branches: readonly Branch[], id: number): Map<number, number> {
  const found = new Map<number, number>([[id, Number.POSITIVE_INFINITY]]);
  let last = Number.POSITIVE_INFINITY;
  let branch = branches.find((each) => each.id === id);
  while (branch !== undefined && branch.parent !== null && !found.has(branch.parent)) {
    const { parent, step } = branch;
    last = Math.min(last, step);
    found.set(parent, last);
    branch = branches.find((each) => each.id === parent);
  }
  return found;
}

/** All lines in stretches; what was abandoned comes first, to lie under the run's own line. */
export function stretchesOf(
  lines: readonly Line[],
  { head, branches }: Pick<Store, "head" | "branches">,
): Stretch[] {
  const own = lineage(branches, head.branch_id);
  const abandoned: Stretch[] = [];
  const live: Stretch[] = [];
  for (const line of lines) {
    const { length } = line.steps;
    const last = line.round === head.round ? own.get(line.branch) : undefined;
    const after = last === undefined ? 0 : line.steps.findIndex((step) => step > last);
    const end = after < 0 ? length : after;
    if (end > 0) live.push({ line, live: true, from: 0, to: end });
    // From the last common point on: there is no hole between the two.
    const from = Math.max(0, end - 1);
    if (end < length) abandoned.push({ line, live: false, from, to: length });
  }
  return [...abandoned, ...live];
}
