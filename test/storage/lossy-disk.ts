import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import type { Prng } from '../../base/prng.ts';
import { diskFileOps, type FileOps } from '../../server/storage/file-ops.ts';

type Change = { readonly position: number; readonly bytes: Buffer } | { readonly sizeBytes: number };

interface Contents {
  /** As of the last sync. */
  synced: Buffer;
  /** Since then. */
  changes: Change[];
}

/**
 * A disk that can lose power: it knows what of every file was synced, and makes a copy of a folder as it may be
 * afterwards, in which any part of the unsynced writes is missing. The log of the index is cut anywhere after its last
 * sync. Names are not lost: the store syncs directories by other means.
 */
export class LossyDisk implements FileOps {
  readonly #paths = new Map<number, string>();
  readonly #files = new Map<string, Contents>();
  readonly #logSynced = new Map<string, number>();
  /** Syncs of contents, and of nothing else, wait for this. */
  contentsHeld: Promise<void> = Promise.resolve();

  async open(file: string, flags: number): Promise<number> {
    const fd = await diskFileOps.open(file, flags);
    this.#paths.set(fd, file);
    if (file.endsWith('.dat') && !this.#files.has(file)) {
      this.#files.set(file, { synced: fs.readFileSync(file), changes: [] });
    }
    return fd;
  }

  async close(fd: number): Promise<void> {
    this.#paths.delete(fd);
    await diskFileOps.close(fd);
  }

  async write(fd: number, buffers: readonly Uint8Array[], position: number): Promise<number> {
    this.#of(fd)?.changes.push({ position, bytes: Buffer.concat(buffers) });
    return diskFileOps.write(fd, buffers, position);
  }

  writeNow(file: string, buffers: readonly Uint8Array[], position: number): void {
    const contents = this.#files.get(file) ?? { synced: Buffer.alloc(0), changes: [] };
    this.#files.set(file, contents);
    contents.changes.push({ position, bytes: Buffer.concat(buffers) });
    diskFileOps.writeNow(file, buffers, position);
  }

  read(fd: number, buffer: Uint8Array, position: number): Promise<number> {
    return diskFileOps.read(fd, buffer, position);
  }

  async datasync(fd: number): Promise<void> {
    const file = this.#paths.get(fd) as string;
    if (file.endsWith('-wal')) {
      const { size } = fs.fstatSync(fd);
      await diskFileOps.datasync(fd);
      this.#logSynced.set(file, size);
      return;
    }
    await this.contentsHeld;
    const contents = this.#of(fd);
    const count = contents?.changes.length ?? 0;
    await diskFileOps.datasync(fd);
    if (contents === undefined) return;
    for (const change of contents.changes.splice(0, count))
      contents.synced = changed(contents.synced, change);
  }

  async truncate(fd: number, sizeBytes: number): Promise<void> {
    this.#of(fd)?.changes.push({ sizeBytes });
    await diskFileOps.truncate(fd, sizeBytes);
  }

  async unlink(file: string): Promise<void> {
    this.#files.delete(file);
    await diskFileOps.unlink(file);
  }

  flushDirectory(directory: string): Promise<void> {
    return diskFileOps.flushDirectory(directory);
  }

  /** Copies `from` to `to` as it may be found after a loss of power right now. */
  copyAfterLoss(from: string, to: string, prng: Prng): void {
    // By another process: this one would release SQLite's locks.
    execFileSync('cp', ['-r', from, to]);
    for (const [file, contents] of this.#files) {
      let bytes = contents.synced;
      for (const change of contents.changes) {
        const turn = prng.integer(0, 3);
        if (turn === 0) continue;
        if (turn === 1 && 'bytes' in change) {
          const torn = change.bytes.subarray(0, prng.integer(0, change.bytes.length));
          bytes = changed(bytes, { position: change.position, bytes: torn });
        } else {
          bytes = changed(bytes, change);
        }
      }
      fs.writeFileSync(path.join(to, path.relative(from, file)), bytes);
    }
    for (const [file, synced] of this.#logSynced) {
      const copy = path.join(to, path.relative(from, file));
      const { size } = fs.statSync(copy);
      if (size > synced) fs.truncateSync(copy, prng.integer(synced, size));
    }
  }

  /**
   * Copies `from` to `to` as the next process finds it after this one was killed.
   * @returns the disk for that process, which knows what is still not synced
   */
  copyAfterKill(from: string, to: string): LossyDisk {
    execFileSync('cp', ['-r', from, to]);
    const next = new LossyDisk();
    for (const [file, { synced, changes }] of this.#files) {
      next.#files.set(path.join(to, path.relative(from, file)), { synced, changes: [...changes] });
    }
    return next;
  }

  #of(fd: number): Contents | undefined {
    return this.#files.get(this.#paths.get(fd) as string);
  }
}

function changed(bytes: Buffer, change: Change): Buffer {
  const size =
    'bytes' in change ? Math.max(bytes.length, change.position + change.bytes.length) : change.sizeBytes;
  const next = Buffer.alloc(size);
  bytes.copy(next);
  if ('bytes' in change) next.set(change.bytes, change.position);
  return next;
}
