import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { crc32 } from '../../checksum/crc32.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { DiskStore } from '../storage/disk-store.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import { decodeRepairRequest, encodeRepairRequest, REPAIR_CALL } from './repair-call.ts';

/** One object of one server is waited for so long, in milliseconds; then the next one is asked. */
const ANSWER_MS_MAX = 3_000;
/** Servers that do not answer, or are not connected, are asked again: so often, after so many milliseconds. */
const ATTEMPTS_MAX = 5;
const RETRY_MS = 500;

export interface RepairerParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly store: Pick<DiskStore, 'record' | 'inspect'>;
  isConnected(server: ServerId): boolean;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
}

/** An object that is damaged here. */
export interface DamagedObject {
  readonly file: FileId;
  readonly index: number;
}

/**
 * Finds the bytes of objects that are damaged on this server's disk at the other servers of the file's view, and
 * gives them the same help. Only the same version with the same checksum will do: an older one, or none, is
 * never put in its place.
 */
export class Repairer {
  readonly #parts: RepairerParts;
  #fetchedCount = 0;
  #failedCount = 0;

  constructor(parts: RepairerParts) {
    this.#parts = parts;
  }

  /** Damaged objects whose bytes came from another server. */
  get fetchedCount(): number {
    return this.#fetchedCount;
  }

  /** Times that a damaged object's bytes were to be had nowhere. */
  get failedCount(): number {
    return this.#failedCount;
  }

  /** @returns the bytes of this version, checked, from the first server that has them; null where none does */
  async fetch(file: FileId, entry: ObjectEntry): Promise<Uint8Array | null> {
    const { self, store, isConnected, log } = this.#parts;
    const view = store.record(file)?.view;
    const members = new Set([...(view?.members ?? []), ...(view?.joint ?? [])]);
    members.delete(self);
    for (let attempt = 1; attempt <= ATTEMPTS_MAX && members.size > 0; attempt++) {
      // Servers that start or elect are often back in a moment, and a failed read or replica is not.
      if (attempt > 1) await this.#parts.world.sleep(RETRY_MS);
      for (const server of members) {
        if (!isConnected(server)) continue;
        const answer = await this.#ask(server, file, entry);
        if (answer === 'no-answer') continue;
        members.delete(server);
        if (answer === 'without') continue;
        this.#fetchedCount++;
        log.warn(
          { file, object: entry.index, from: server },
          'a damaged object was fetched from another server',
        );
        return answer;
      }
    }
    this.#failedCount++;
    log.error({ file, object: entry.index }, 'a damaged object is whole on no server that can be reached');
    return null;
  }

  /** Answers another server's `fetch`: the bytes, or nothing where they are not here, or damaged too. */
  async serve(payload: Uint8Array): Promise<Uint8Array> {
    const { file, entry } = decodeRepairRequest(payload);
    const found = await this.#parts.store.inspect(file, entry);
    return found === 'damaged' || found === 'gone' ? new Uint8Array(0) : found;
  }

  async #ask(
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
