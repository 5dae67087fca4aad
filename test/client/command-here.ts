/**
 * Runs commands of the program in this process: starting a process takes a tenth of a second of processor time, and all
 * tests together run hundreds of commands. Each command has its own output, input and environment. Commands run one
 * after the other, because a process has one exit code.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { dirname, join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import { LAUNCHER, SOURCE_LAUNCHER } from '../launcher.ts';

type Client = typeof import('../../client/main.ts');

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a command uses instead of the process's own. */
interface Surroundings {
  readonly env: NodeJS.ProcessEnv;
  readonly stdin: Readable;
  readonly stdout: Kept;
  readonly stderr: Kept;
}

class Kept extends Writable {
  readonly #chunks: Uint8Array[] = [];

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString();
  }
}

const surroundings = new AsyncLocalStorage<Surroundings>();
for (const name of ['env', 'stdin', 'stdout', 'stderr'] as const) {
  const own = Object.getOwnPropertyDescriptor(process, name);
  Object.defineProperty(process, name, {
    configurable: true,
    enumerable: true,
    get: () => surroundings.getStore()?.[name] ?? own?.get?.call(process) ?? own?.value,
  });
}

let last: Promise<unknown> = Promise.resolve();
let client: Promise<Client> | undefined;

/** The program that the launcher starts: its own child processes are as fast. */
function load(): Promise<Client> {
  const place = join(dirname(LAUNCHER), '../client/main.js');
  client ??=
    LAUNCHER === SOURCE_LAUNCHER ? import('../../client/main.ts') : import(pathToFileURL(place).href);
  return client;
}

/** @param argv what follows the name of the program; not of a command that waits for signals or starts servers */
export function runHere(
  argv: readonly string[],
  options: { readonly env?: NodeJS.ProcessEnv; readonly input?: string | Buffer } = {},
): Promise<CommandResult> {
  const result = last.then(async () => {
    const { runCli } = await load();
    const own: Surroundings = {
      env: { ...process.env, ...options.env },
      stdin: Readable.from([Buffer.from(options.input ?? '')]),
      stdout: new Kept(),
      stderr: new Kept(),
    };
    const before = process.exitCode;
    process.exitCode = undefined;
    try {
      await surroundings.run(own, () => runCli(argv));
      return { code: Number(process.exitCode ?? 0), stdout: own.stdout.text(), stderr: own.stderr.text() };
    } finally {
      process.exitCode = before;
    }
  });
  last = result.catch(() => undefined);
  return result;
}
