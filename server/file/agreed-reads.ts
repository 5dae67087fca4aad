import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { Position, ReplicaRecord } from '../../replica/actions.ts';
import { agrees, isAgreed, standpointOf } from '../../replica/agreement.ts';
import { readFileId, readPosition, writePosition } from '../../replica/codec.ts';
import { ByteReader, ByteWriter } from '../../wire/bytes.ts';
import type { Clock } from '../clock.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type { FileStore } from '../storage/store.ts';

/** The call by which a server asks another whether its replica stands at the same place. */
export const AGREE_CALL = 'agree';

/** Who is asked has so long; then whoever reads becomes the primary, as for any other read. */
const AGREE_MS = 200;
/** Reads of a file that nobody leads, within this time of each other, before it is worth a primary. */
const READS_MAX = 4;
const TOGETHER_MS = 1_000;
const FILES_MAX = 10_000;

const YES = Uint8Array.of(1);
const NO = Uint8Array.of(0);

export interface AgreedReadsParts {
  readonly self: ServerId;
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: Pick<FileStore, 'record' | 'trust'>;
  readonly host: Pick<ReplicaHost, 'isFree'>;
  isConnected(server: ServerId): boolean;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
}

/** Finds out whether what lies here is the newest state of a file that nobody leads. */
export class AgreedReads {
  readonly #parts: AgreedReadsParts;
  readonly #counts = new LRUCache<FileId, { readonly count: number; readonly lastMs: number }>({
    max: FILES_MAX,
  });

  constructor(parts: AgreedReadsParts) {
    this.#parts = parts;
  }

  /**
   * Reads what is here, if it is the newest.
   *
   * @param read called in the turn in which it is known to be, and to pin the contents in it; with the position that they are of
   * @returns null where that is not known
   */
  async read<Value>(file: FileId, read: (place: Position) => Promise<Value | null>): Promise<Value | null> {
    const { self, store, host, isConnected } = this.#parts;
    const record = store.record(file);
    const place = record === null ? null : standpointOf(record, store.trust(file));
    if (record === null || place === null || !host.isFree(file) || !this.#isSeldom(file)) return null;
    const { view } = record;
    if (!view.members.includes(self)) return null;
    const others = inTurn(view.members, self)
      .filter(isConnected)
      .slice(0, majority(view.members.length) - 1);
    const agreeing = new Set([self]);
    const payload = encodeAgreeCall(file, place, view.number);
    await Promise.all(
      others.map(async (server) => {
        if (await this.#ask(server, payload)) agreeing.add(server);
      }),
    );
    // Here, too, it has to be so after the call: in this turn.
    return isAgreed(view, agreeing) && this.#agrees(file, place, view.number) ? read(place) : null;
  }

  /** Answers the call of a server that wants to read. */
  serve(payload: Uint8Array): Uint8Array {
    const { file, place, viewNumber } = decodeAgreeCall(payload);
    return this.#agrees(file, place, viewNumber) ? YES : NO;
  }

  #agrees(file: FileId, place: Position, viewNumber: number): boolean {
    const { store, host } = this.#parts;
    const record: ReplicaRecord | null = store.record(file);
    return record !== null && host.isFree(file) && agrees(record, store.trust(file), place, viewNumber);
  }

  async #ask(server: ServerId, payload: Uint8Array): Promise<boolean> {
    try {
      const answer = await this.#parts.call(server, AGREE_CALL, payload, AGREE_MS);
      return answer[0] === YES[0];
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#parts.log.debug({ server, err: error }, 'a server did not say where its replica stands');
      return false;
    }
  }

  /** Who reads on and on is served better by a primary, which asks nobody. */
  #isSeldom(file: FileId): boolean {
    const nowMs = this.#parts.clock.nowMs();
    const known = this.#counts.get(file);
    const count = known !== undefined && nowMs - known.lastMs < TOGETHER_MS ? known.count + 1 : 1;
    this.#counts.set(file, { count, lastMs: nowMs });
    return count <= READS_MAX;
  }
}

/** Those who follow by name first, as for operations: what is sent to one neighbour shares frames. */
function inTurn(members: readonly ServerId[], self: ServerId): ServerId[] {
  const sorted = members.toSorted();
  const from = sorted.indexOf(self);
  return [...sorted.slice(from + 1), ...sorted.slice(0, from)];
}

function encodeAgreeCall(file: FileId, place: Position, viewNumber: number): Uint8Array {
  return writePosition(new ByteWriter(64).uint53(file).uint53(viewNumber), place).finish();
}

/** @throws MalformedError */
function decodeAgreeCall(bytes: Uint8Array): { file: FileId; place: Position; viewNumber: number } {
  const reader = new ByteReader(bytes);
  const file = readFileId(reader);
  const viewNumber = reader.uint53();
  const place = readPosition(reader);
  reader.end();
  return { file, place, viewNumber };
}
