import { Prng } from '../../base/prng.ts';
import { Program, USERS } from '../posix/program.ts';
import { Register } from './register.ts';
import { type Place, type Subject, subjects } from './subjects.ts';

export interface CoherenceOptions {
  readonly seed: number;
  /** The number of groups of subjects. */
  readonly groups: number;
  readonly rounds: number;
  /** The rounds end after this time at the latest. */
  readonly limitMs?: number;
  readonly actors: number;
  /** Name prefixes of subjects to leave out. */
  readonly without?: readonly string[];
}

export interface CoherenceResult {
  readonly changes: number;
  readonly looks: number;
  /** The number of calls that failed, by subject and error. */
  readonly failed: ReadonlyMap<string, number>;
  /** Descriptions of impossible answers. */
  readonly wrong: readonly string[];
}

interface Watched {
  readonly subject: Subject;
  readonly register: Register;
  busy: boolean;
}

const WRONG_MAX = 20;

/**
 * Several actors change and query things on several mounts at once. Each answer is compared with the versions that
 * were possible between the begin and the end of the query.
 */
export class Coherence {
  readonly #places: readonly Place[];
  readonly #options: CoherenceOptions;
  readonly #prng: Prng;
  readonly #failed = new Map<string, number>();
  readonly #wrong: string[] = [];
  #changes = 0;
  #looks = 0;

  /** @param mounts converts names to paths on each mount */
  constructor(mounts: readonly { path(...names: string[]): string }[], options: CoherenceOptions) {
    this.#places = mounts.map((mount) => ({
      path: (...names) => mount.path(...names),
      program: new Program(USERS.root),
      held: new Map(),
    }));
    this.#options = options;
    this.#prng = new Prng(options.seed);
  }

  async run(): Promise<CoherenceResult> {
    const { groups, rounds, actors, limitMs = Number.POSITIVE_INFINITY, without = [] } = this.#options;
    const watched = Array.from({ length: groups }, (_, number) => subjects(number))
      .flat()
      .filter(({ name }) => !without.some((kind) => name.startsWith(kind)))
      .map((subject): Watched => ({ subject, register: new Register(), busy: false }));
    for (const { subject } of watched) await subject.make(this.#place());
    const endMs = performance.now() + limitMs;
    let round = 0;
    const act = async (): Promise<void> => {
      while (round++ < rounds && performance.now() < endMs && this.#wrong.length < WRONG_MAX) {
        const one = this.#prng.pick(watched);
        if (one === undefined) continue;
        if (one.busy || this.#prng.chance(0.6)) await this.#look(one);
        else if (await this.#change(one)) {
          // This actor knows that the change has ended.
          await this.#look(one);
          await this.#look(one);
        } else watched.splice(watched.indexOf(one), 1);
      }
    };
    try {
      await Promise.all(Array.from({ length: actors }, act));
    } finally {
      await this.#stop();
    }
    return { changes: this.#changes, looks: this.#looks, failed: this.#failed, wrong: this.#wrong };
  }

  #place(): Place {
    return this.#prng.pick(this.#places);
  }

  /** @returns false if the outcome of the change is unknown */
  async #change(one: Watched): Promise<boolean> {
    one.busy = true;
    const version = one.register.begin(performance.now());
    try {
      await one.subject.change(this.#place(), version);
      one.register.made(version, performance.now());
      one.busy = false;
      this.#changes++;
      return true;
    } catch (error) {
      this.#fail(one, error);
      return false;
    }
  }

  async #look({ subject, register }: Watched): Promise<void> {
    const names = Object.keys(subject.looks);
    const name = this.#prng.pick(names);
    const at = this.#prng.integer(0, this.#places.length - 1);
    const fromMs = performance.now();
    try {
      const seen = await subject.looks[name]?.(this.#places[at] as Place);
      if (seen === undefined) return;
      this.#looks++;
      const wrong = register.judge(fromMs, performance.now(), seen.shows, seen.mixes);
      if (wrong === null) return;
      const when = `${Math.round(fromMs)} to ${Math.round(performance.now())} ms`;
      this.#wrong.push(
        `${subject.name}, ${name} on mount ${at}, ${when}: ${wrong}: ${JSON.stringify(seen.text)}`,
      );
    } catch (error) {
      this.#fail({ subject }, error);
    }
  }

  #fail({ subject }: Pick<Watched, 'subject'>, error: unknown): void {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    const what = `${subject.name.replace(/-\d+.*/, '')} ${code}`;
    this.#failed.set(what, (this.#failed.get(what) ?? 0) + 1);
  }

  async #stop(): Promise<void> {
    for (const { held, program } of this.#places) {
      for (const handle of held.values()) await (await handle).close();
      await program.stop();
    }
  }
}
