import { systemWorld } from '../../world/system-world.ts';
import { type Damage, damageSum, NO_DAMAGE } from './ledger.ts';

/** Writes and reads that continue while servers are killed. */
export interface Load {
  readonly title: string;
  readonly path: string;
  /** Works until `signal` is aborted; fails only by a mistake of its own. */
  run(signal: AbortSignal): Promise<void>;
  readonly seen: Damage;
  readonly acknowledged: number;
  readonly reads: number;
  compare(contents: Uint8Array): Damage;
}

export class DamageLog {
  #sum: Damage = NO_DAMAGE;
  readonly #say: (text: string) => void;

  constructor(say: (text: string) => void) {
    this.#say = say;
  }

  get sum(): Damage {
    return this.#sum;
  }

  add(kind: keyof Damage, what: string): void {
    this.#sum = damageSum(this.#sum, { ...NO_DAMAGE, [kind]: 1 });
    this.#say(`${kind}: ${what}`);
  }
}

export async function repeat(signal: AbortSignal, pauseMs: number, step: () => Promise<void>): Promise<void> {
  while (!signal.aborted) {
    await step();
    // The pace of the load, not a wait for something.
    await systemWorld.sleep(pauseMs);
  }
}
