import { systemWorld } from '../../world/system-world.ts';
import { type Damage, damageSum, NO_DAMAGE } from './ledger.ts';

/** Writes and reads that go on while servers are killed. */
export interface Load {
  /** What it is, for people: `appends through the mount`. */
  readonly title: string;
  /** Path of its file in the volume. */
  readonly path: string;
  /** Works until `signal` says that it is enough; fails only by a mistake of its own. */
  run(signal: AbortSignal): Promise<void>;
  /** Damage that its reads have seen so far. */
  readonly seen: Damage;
  readonly acknowledged: number;
  readonly reads: number;
  /** Compares what is stored in the end with what was acknowledged. */
  compare(contents: Uint8Array): Damage;
}

/** Damage as it is noticed, with a word on each for the user. */
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

/** Repeats `step` with a pause after each, until `signal` is aborted. */
export async function repeat(signal: AbortSignal, pauseMs: number, step: () => Promise<void>): Promise<void> {
  while (!signal.aborted) {
    await step();
    // The pace of the load, not a wait for something.
    await systemWorld.sleep(pauseMs);
  }
}
