import type { LiveMark } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';

interface SettledFile {
  readonly inode: number;
  readonly sizeBytes: number;
  readonly holeBytes?: number;
  readonly modifiedNs: string;
  readonly contents: { readonly epoch: number; readonly seq: number };
  readonly mark: LiveMark;
}

const FILES_MAX = 500;

interface Waiting {
  readonly file: SettledFile;
  resolve(): void;
  reject(error: unknown): void;
}

/** Settles many files with one command: files that arrive while one is in progress wait for the next. */
export class SettleBatches {
  readonly #send: (files: SettledFile[]) => Promise<unknown>;
  #waiting: Waiting[] = [];
  #busy = false;

  constructor(send: (files: SettledFile[]) => Promise<unknown>) {
    this.#send = send;
  }

  /** Resolves once the catalog has it; rejects with the command's error. */
  settle(state: FileState, mark: LiveMark): Promise<void> {
    const { file: inode, sizeBytes, holeBytes = 0, modifiedNs, contents } = state;
    const file = { inode, sizeBytes, modifiedNs, contents, mark, ...(holeBytes > 0 && { holeBytes }) };
    return new Promise((resolve, reject) => {
      this.#waiting.push({ file, resolve, reject });
      void this.#pump();
    });
  }

  /** Sends the waiting files, up to `FILES_MAX` in a command, until none waits; one command at a time. */
  async #pump(): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, FILES_MAX);
      try {
        await this.#send(batch.map((waiting) => waiting.file));
        for (const waiting of batch) waiting.resolve();
      } catch (error) {
        for (const waiting of batch) waiting.reject(error);
      }
    }
    this.#busy = false;
  }
}
