import { ServiceError } from '../../base/errors.ts';
import type { Timer } from '../../base/world.ts';
import { SETTLE_FILES_MAX, type SettleAnswer } from '../../wire/http-api.ts';
import type { Exchanger } from '../transport/exchange.ts';
import { postRequest } from '../transport/request.ts';
import type { FileHandle } from './file-handle.ts';

/** How long closed files wait for others. Until then, queries get their sizes from the files' primaries. */
const GATHER_MS = 200;

interface Waiting {
  readonly handle: FileHandle;
  resolve(): void;
  reject(error: unknown): void;
}

/** Settles files that are closed within `GATHER_MS` together: one request per primary. */
export class SettleBatches {
  readonly #exchanger: Exchanger;
  #waiting: Waiting[] = [];
  #timer: Timer | undefined;

  constructor(exchanger: Exchanger) {
    this.#exchanger = exchanger;
  }

  /** Resolves when the catalog has the file's size and modification time. @throws as `FileHandle.settle` */
  settle(handle: FileHandle): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ handle, resolve, reject });
      this.#timer ??= this.#exchanger.world.after(GATHER_MS, () => this.#send());
    });
  }

  #send(): void {
    this.#timer = undefined;
    const byPrimary = new Map<string | null, Waiting[]>();
    for (const waiting of this.#waiting.splice(0)) {
      const { primary } = waiting.handle;
      const batch = byPrimary.get(primary) ?? [];
      batch.push(waiting);
      byPrimary.set(primary, batch);
    }
    for (const [primary, batch] of byPrimary) {
      for (let from = 0; from < batch.length; from += SETTLE_FILES_MAX) {
        void this.#settle(primary, batch.slice(from, from + SETTLE_FILES_MAX));
      }
    }
  }

  async #settle(primary: string | null, batch: readonly Waiting[]): Promise<void> {
    const files = batch.map(({ handle }) => handle.file);
    const request = postRequest(`Cannot settle ${files.length} files`, '/v1/data/settle', { files });
    try {
      const { failed } = await this.#exchanger.ask<SettleAnswer>(request, {}, { primary });
      const failures = new Map(
        failed.map(({ file, code, message }) => [file, new ServiceError(code, message)]),
      );
      for (const { handle, resolve, reject } of batch) {
        const failure = failures.get(handle.file);
        if (failure === undefined) resolve();
        else reject(failure);
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }
}
