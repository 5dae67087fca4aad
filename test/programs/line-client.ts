import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

interface LineAnswer {
  readonly value?: unknown;
  readonly errno?: string;
  readonly reason?: string;
}

/** A client of a gateway in a Python process, which answers each line of JSON with another. */
export class LineClient {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  #complaint = '';

  constructor(python: string, script: string, ...argv: readonly string[]) {
    const path = fileURLToPath(new URL(script, import.meta.url));
    this.#child = spawn(python, [path, ...argv], { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.#complaint += chunk.toString();
    });
    // The next answer reports that it has ended.
    this.#child.stdin?.on('error', () => undefined);
    if (this.#child.stdout === null) throw new Error('unreachable');
    this.#answers = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** @returns what the call returned. @throws Error whose message begins with the name of the error, as `EACCES` */
  async call(name: string, ...argv: readonly unknown[]): Promise<unknown> {
    this.#child.stdin?.write(`${JSON.stringify([name, ...argv])}\n`);
    const { value: line, done } = await this.#answers.next();
    if (done === true) throw new Error(`The client has ended: ${this.#complaint}`);
    const answer = JSON.parse(line) as LineAnswer;
    if (answer.errno !== undefined) throw new Error(`${answer.errno}: ${answer.reason}`);
    return answer.value;
  }

  stop(): void {
    this.#child.kill('SIGKILL');
  }
}
