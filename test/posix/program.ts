import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const CALLS = fileURLToPath(new URL('calls.py', import.meta.url));
const PYTHON = 'python3';

export interface User {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups. */
  readonly groups: readonly number[];
}

/** Alice owns the files of the rules, Carol is in her group, Bob is not. */
export const USERS = {
  root: { uid: 0, gid: 0, groups: [0] },
  alice: { uid: 1001, gid: 1001, groups: [1001, 2000] },
  bob: { uid: 1002, gid: 1002, groups: [1002] },
  carol: { uid: 1003, gid: 1003, groups: [1003, 1001] },
} as const satisfies Record<string, User>;

export type UserName = keyof typeof USERS;

/** The outcome of a call: its value as text, or the name of its error. */
export interface Outcome {
  readonly value?: string;
  readonly errno?: string;
}

/** A process that makes system calls as one user, one after the other. */
export class Program {
  readonly #child: ChildProcess;
  readonly #waiting: ((outcome: Outcome) => void)[] = [];

  constructor({ uid, gid, groups }: User) {
    const argv = ['-I', '-S', CALLS, String(uid), String(gid), groups.join(',')];
    this.#child = spawn(PYTHON, argv, { cwd: '/', stdio: ['pipe', 'pipe', 'inherit'] });
    const { stdout } = this.#child;
    if (stdout === null) throw new Error('A program has an output');
    createInterface({ input: stdout }).on('line', (line) => {
      this.#waiting.shift()?.(JSON.parse(line) as Outcome);
    });
    this.#child.on('exit', () => {
      for (const answer of this.#waiting.splice(0)) answer({ errno: 'the program has ended' });
    });
  }

  /** Makes a call, after all earlier ones. */
  call(call: string, ...values: readonly (string | number)[]): Promise<Outcome> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#child.stdin?.write(`${JSON.stringify([call, ...values.map(String)])}\n`);
    });
  }

  /** @throws Error if the call fails */
  async value(call: string, ...values: readonly (string | number)[]): Promise<string> {
    const { value, errno } = await this.call(call, ...values);
    if (value === undefined) throw new Error(`${call} ${values.join(' ')}: ${errno}`);
    return value;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await gone;
  }
}

/** @returns why this machine cannot run programs as several users, or false */
export async function noPrograms(): Promise<string | false> {
  if (process.getuid?.() !== 0) return 'Only root can act for several users';
  try {
    await promisify(execFile)(PYTHON, ['-I', '-S', '-c', 'import ctypes, mmap, socket']);
    return false;
  } catch (error) {
    return `python3 is needed for calls that Node has not: ${String(error)}`;
  }
}
