import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { crc32 } from '../../platform/crc32.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { DiskStore } from '../storage/disk-store.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import { decodeRepairRequest, encodeRepairRequest, REPAIR_CALL } from './repair-call.ts';

/** Longest wait for one object from one server, in milliseconds; then the next one is asked. */
const ANSWER_MS_MAX = 3_000;
/** Servers that do not answer, or are not connected, are asked again: this often, after this pause. */
const ATTEMPTS_MAX = 5;
const RETRY_MS = 500;

export interface RepairerParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly store: Pick<DiskStore, 'record' | 'inspect'>;
  /** Called when another server has given the bytes of a damaged object. */
  repaired(file: FileId, index: number): void;
  isConnected(server: ServerId): boolean;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
}

export interface DamagedObject {
  readonly file: FileId;
  readonly index: number;
}

/**
 * Fetches the bytes of damaged objects from other servers of the file's view, and serves such requests. Only the same
 * version with the same checksum is accepted: a damaged object is never replaced by an older one.
 */
export class Repairer {
  readonly #parts: RepairerParts;
  #fetchedCount = 0;
  #failedCount = 0;

  constructor(parts: RepairerParts) {
    this.#parts = parts;
  }

  get fetchedCount(): number {
    return this.#fetchedCount;
  }

  get failedCount(): number {
    return this.#failedCount;
  }

  /** @returns the verified bytes of this version from the first server that has them; null if none does */
  async fetch(file: FileId, entry: ObjectEntry): Promise<Uint8Array | null> {
    const { self, store, isConnected, log } = this.#parts;
    const view = store.record(file)?.view;
    const members = new Set([...(view?.members ?? []), ...(view?.joint ?? [])]);
    members.delete(self);
    for (let attempt = 1; attempt <= ATTEMPTS_MAX && members.size > 0; attempt++) {
      // A short wait is cheaper than a failed read or replica: a server that restarts often answers soon.
      if (attempt > 1) await this.#parts.world.sleep(RETRY_MS);
      for (const server of members) {
        if (!isConnected(server)) continue;
        const answer = await this.#fetchFrom(server, file, entry);
        if (answer === 'no-answer') continue;
        members.delete(server);
        if (answer === 'without') continue;
        this.#fetchedCount++;
        this.#parts.repaired(file, entry.index);
        log.warn(
          { file, object: entry.index, from: server },
          'repaired a damaged object from another server',
        );
        return answer;
      }
    }
    this.#failedCount++;
    log.error(
      { file, object: entry.index },
      'cannot repair a damaged object: no reachable server has an intact copy; start the other servers',
    );
    return null;
  }

  /** Answers another server's `fetch`: the bytes, or nothing if they are not here, or damaged too. */
  async serve(payload: Uint8Array): Promise<Uint8Array> {
    const { file, entry } = decodeRepairRequest(payload);
    const found = await this.#parts.store.inspect(file, entry);
    return found === 'damaged' || found === 'absent' ? new Uint8Array(0) : found;
  }

  async #fetchFrom(
    server: ServerId,
    file: FileId,
    entry: ObjectEntry,
  ): Promise<Uint8Array | 'without' | 'no-answer'> {
    try {
      const request = encodeRepairRequest({ file, entry });
      const bytes = await this.#parts.call(server, REPAIR_CALL, request, ANSWER_MS_MAX);
      return bytes.length === entry.length && crc32(bytes) === entry.crc32 ? bytes : 'without';
    } catch (error) {
      if (!(error instanceof ServiceError) && !(error instanceof MalformedError)) throw error;
      this.#parts.log.info(
        { server, file, reason: error.message },
        'a server could not help to repair an object',
      );
      return 'no-answer';
    }
  }
}
