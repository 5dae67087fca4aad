import type { Logger } from 'pino';
import type { FileId } from '../../base/ids.ts';
import type { Command, Query } from '../../wire/catalog-api.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type { FileStore } from '../storage/store.ts';

/** Files compared with the catalog in one query, and collected by one command. */
const PAGE = 1_000;

export interface GarbageParts {
  readonly log: Logger;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  /** A file without a name is kept for this long, in milliseconds, for those who still read it. */
  readonly graceMs: number;
  nowNs(): bigint;
  isCatalogPrimary(): boolean;
  command(command: Command): Promise<unknown>;
  query(query: Query): Promise<unknown>;
}

/**
 * Removes what nobody can reach. The catalog's primary forgets files that have had no name for the
 * grace time; every server removes replicas of files that the catalog no longer knows. Ids are never
 * used twice, so a server that was away for any time cannot bring a deleted file back.
 */
export class Garbage {
  readonly #parts: GarbageParts;
  readonly #timer: NodeJS.Timeout;
  #busy = false;

  constructor(parts: GarbageParts) {
    this.#parts = parts;
    const periodMs = Math.min(60_000, Math.max(1_000, parts.graceMs / 2));
    this.#timer = setInterval(() => void this.#run(), periodMs);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #run(): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    try {
      if (this.#parts.isCatalogPrimary()) await this.#collect();
      await this.#removeUnknown();
    } catch (error) {
      this.#parts.log.debug({ err: error }, 'garbage is left for the next round');
    } finally {
      this.#busy = false;
    }
  }

  async #collect(): Promise<void> {
    const beforeNs = this.#parts.nowNs() - BigInt(Math.round(this.#parts.graceMs)) * 1_000_000n;
    await this.#parts.command({ kind: 'collect', beforeNs: beforeNs.toString(), countMax: PAGE });
  }

  async #removeUnknown(): Promise<void> {
    const { store, host, lease, log } = this.#parts;
    let after = 0 as FileId;
    for (;;) {
      const page = store.list(after, PAGE);
      const last = page.at(-1);
      if (last === undefined) return;
      after = last;
      const answer = (await this.#parts.query({ kind: 'existing', inodes: page })) as {
        inodes: readonly number[];
      };
      const existing = new Set(answer.inodes);
      for (const file of page) {
        if (existing.has(file)) continue;
        lease.close(file);
        await host.remove(file);
        log.debug({ file }, 'removed the replica of a deleted file');
      }
    }
  }
}
