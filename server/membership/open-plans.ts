import type { World } from '../../base/world.ts';
import type { PlacedFile } from '../../wire/catalog-api.ts';

/** A plan that was open for this time is resumed: the file's primary has abandoned it, or the change takes long. */
export const PLAN_MS = 120_000;
/** The same for a plan with a server that leaves, which is not removed before the plan has ended. */
const LEAVING_PLAN_MS = 5_000;

interface SeenPlan {
  readonly mark: string;
  readonly sinceMs: number;
}

/** Finds plans for new members that have been open for long. */
export class OpenPlans {
  readonly #world: Pick<World, 'nowMs'>;
  #plans = new Map<number, SeenPlan>();

  constructor(world: Pick<World, 'nowMs'>) {
    this.#world = world;
  }

  /** @param files all files with a plan. @returns those whose plan is to be resumed now */
  async *due(files: AsyncIterable<PlacedFile>, leaving: readonly string[]): AsyncGenerator<PlacedFile> {
    const found = new Map<number, SeenPlan>();
    const due: PlacedFile[] = [];
    for await (const file of files) {
      const nowMs = this.#world.nowMs();
      const mark = JSON.stringify(file.planned?.mark);
      const before = this.#plans.get(file.inode);
      const sinceMs = before?.mark === mark ? before.sinceMs : nowMs;
      const waitMs = file.planned?.servers.some((id) => leaving.includes(id)) ? LEAVING_PLAN_MS : PLAN_MS;
      const isDue = nowMs - sinceMs >= waitMs;
      found.set(file.inode, { mark, sinceMs: isDue ? nowMs : sinceMs });
      if (isDue) due.push(file);
    }
    this.#plans = found;
    yield* due;
  }

  reset(): void {
    this.#plans.clear();
  }
}
