import type { Call } from './fuse-client.ts';
import { KernelError } from './kernel-error.ts';
import type { OpenFile } from './open-file.ts';
import { pieces } from './page-cache.ts';
import type { Process } from './process.ts';

/** Bytes of a file in a process's memory. */
export class Mapping {
  readonly #process: Process;
  readonly #file: OpenFile;
  readonly #offset: number;
  readonly #isShared: boolean;
  /** Pages of a private mapping that were changed. */
  readonly #own = new Map<number, Buffer>();

  constructor(process: Process, file: OpenFile, offset: number, isShared: boolean) {
    this.#process = process;
    this.#file = file;
    this.#offset = offset;
    this.#isShared = isShared;
    file.references++;
  }

  /** @throws KernelError SIGBUS beyond the last page of the file */
  read(at: number, length: number): Promise<Buffer> {
    return this.#process.systemCall(async (call) => {
      const parts: Buffer[] = [];
      for (const { index, within, count } of pieces(this.#offset + at, length)) {
        const bytes = this.#own.get(index) ?? (await this.#file.mappedPage(call, index)).bytes;
        parts.push(Buffer.from(bytes.subarray(within, within + count)));
      }
      return Buffer.concat(parts);
    });
  }

  write(at: number, bytes: Uint8Array): Promise<void> {
    return this.#process.systemCall(async (call) => {
      for (const { index, within, count, done } of pieces(this.#offset + at, bytes.length)) {
        const part = bytes.subarray(done, done + count);
        if (this.#isShared) (await this.#file.mappedPageToWrite(call, index)).bytes.set(part, within);
        else (await this.#ownPage(call, index)).set(part, within);
      }
    });
  }

  async #ownPage(call: Call, index: number): Promise<Buffer> {
    const own = this.#own.get(index) ?? Buffer.from((await this.#file.mappedPage(call, index)).bytes);
    this.#own.set(index, own);
    return own;
  }

  /** msync(MS_SYNC) */
  sync(): Promise<void> {
    return this.#process.systemCall((call) => this.#file.sync(call, false));
  }

  /** munmap: writes dirty pages (fuse_vma_close). */
  unmap(): Promise<void> {
    return this.#process.systemCall(() => this.close());
  }

  /** As `unmap`, within a call. */
  async close(): Promise<void> {
    if (!this.#process.mappings.delete(this)) throw new KernelError('EINVAL');
    if (this.#isShared) await this.#file.writeBack();
    this.#file.put();
  }
}
