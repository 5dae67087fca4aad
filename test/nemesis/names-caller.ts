import { type Outcome, Program, USERS } from '../posix/program.ts';
import { countUp } from './recorder.ts';

/** `unknown`: the call failed because of the cluster, and may have taken effect. */
export type Result = { readonly kind: 'ok'; readonly value: string } | { readonly kind: 'no' | 'unknown' };

/** A process that makes system calls on a mount, one at a time. */
export class Caller {
  readonly #program = new Program(USERS.root);
  readonly #errors: Map<string, number>;
  #isOver = false;

  /** @param errors counts of failed calls, by call and error */
  constructor(errors: Map<string, number>) {
    this.#errors = errors;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Kills the process, which also ends a pending call. */
  async end(): Promise<void> {
    this.#isOver = true;
    await this.#program.stop();
  }

  /** @param no the errors that are an answer about names or locks; each other error leaves the outcome unknown */
  async call(no: string | null, call: string, ...values: readonly string[]): Promise<Result> {
    // A killed program answers nothing.
    if (this.#isOver) return { kind: 'unknown' };
    const { value, errno }: Outcome = await this.#program.call(call, ...values);
    if (errno === undefined) return { kind: 'ok', value: value ?? '' };
    if (no?.split(' ').includes(errno)) return { kind: 'no' };
    countUp(this.#errors, `${call} ${errno}`);
    return { kind: 'unknown' };
  }
}
