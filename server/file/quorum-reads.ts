import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import { agrees, hasQuorum, positionForQuorumRead } from '../../replica/agreement.ts';
import { readFileId, readPosition, writePosition } from '../../replica/codec.ts';
import type { Position } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import { ByteReader, ByteWriter } from '../../wire/bytes.ts';
import type { Clock } from '../process/clock.ts';
import type { FileStore } from '../storage/store.ts';
import { Bursts } from './bursts.ts';
import type { ReplicaHost } from './replica-host.ts';

export const AGREE_CALL = 'agree';
export const AGREE_SYNCED_CALL = 'agree-synced';

/** A read waits this long for the others' answers; then this server becomes primary, as for any other read. */
const AGREE_MS = 200;
/** A flush waits longer: the disks of the others may be busy. */
const SYNC_MS = 2_000;
/** Reads of a file without a primary, in one burst, before the file gets one. */
const READS_MAX = 4;

interface ReplicaPosition {
  readonly position: Position;
  readonly view: View;
}

const YES = Uint8Array.of(1);
const NO = Uint8Array.of(0);

export interface QuorumReadsParts {
  readonly self: ServerId;
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: Pick<FileStore, 'record' | 'trust' | 'flush'>;
  readonly host: Pick<ReplicaHost, 'isUnbound'>;
  isConnected(server: ServerId): boolean;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
}

/** Finds out whether the replica here has the newest state of a file without a primary (decision 0055). */
export class QuorumReads {
  readonly #parts: QuorumReadsParts;
  readonly #reads = new Bursts();

  constructor(parts: QuorumReadsParts) {
    this.#parts = parts;
  }

  /**
   * Reads the replica here, if a majority agrees that it is the newest.
   * @param read called in the tick in which that is known; it pins the contents before it returns
   * @returns null if that is not known, or the file is read so often that it should get a primary
   */
  async read<Value>(
    file: FileId,
    read: (position: Position) => Promise<Value | null>,
  ): Promise<Value | null> {
    if (!this.#isSeldom(file)) return null;
    return this.readAlways(file, read);
  }

  /** As `read`, however often it is called: for states, which clients query only while the file is live. */
  async readAlways<Value>(
    file: FileId,
    read: (position: Position) => Promise<Value | null>,
  ): Promise<Value | null> {
    const here = this.#positionHere(file);
    if (here === null) return null;
    const agreeing = await this.#askOthers(file, here, AGREE_CALL, AGREE_MS);
    // The position is compared again, because it may have changed during the call.
    return this.#isAgreed(file, here, agreeing) ? read(here.position) : null;
  }

  /**
   * Has a majority sync the state here, if it is the newest: then all changes acknowledged before survive loss of power
   * of all servers, because a later primary begins with it.
   * @param alongside begun at the same time, and waited for
   * @param synced called in the tick in which that is known
   * @returns null if it is not known
   * @throws ServiceError `storage` if the disk here failed
   */
  async flush<Value>(
    file: FileId,
    alongside: () => Promise<unknown>,
    synced: () => Value,
  ): Promise<Value | null> {
    const here = this.#positionHere(file);
    if (here === null) return null;
    const [agreeing] = await Promise.all([
      this.#askOthers(file, here, AGREE_SYNCED_CALL, SYNC_MS),
      this.#parts.store.flush(file),
      alongside(),
    ]);
    return this.#isAgreed(file, here, agreeing) ? synced() : null;
  }

  serve(from: ServerId, payload: Uint8Array): Uint8Array {
    const { file, position, viewNumber } = decodeAgreeCall(payload);
    return this.#isMember(from, file) && this.#isAtPosition(file, position, viewNumber) ? YES : NO;
  }

  async serveSynced(from: ServerId, payload: Uint8Array): Promise<Uint8Array> {
    const { file, position, viewNumber } = decodeAgreeCall(payload);
    // Compared before and after the sync: a position that changed meanwhile would not be synced.
    if (!this.#isMember(from, file) || !this.#isAtPosition(file, position, viewNumber)) return NO;
    await this.#parts.store.flush(file);
    return this.serve(from, payload);
  }

  /** Whether a caller is a member of the view here: its call has only the number of a view. */
  #isMember(server: ServerId, file: FileId): boolean {
    return this.#parts.store.record(file)?.view.members.includes(server) === true;
  }

  /** @returns the position of the replica here; null if it does not count in a quorum */
  #positionHere(file: FileId): ReplicaPosition | null {
    const { self, store, host } = this.#parts;
    const record = store.record(file);
    const position = record === null ? null : positionForQuorumRead(record, store.trust(file));
    if (record === null || position === null || !host.isUnbound(file)) return null;
    return record.view.members.includes(self) ? { position, view: record.view } : null;
  }

  async #askOthers(
    file: FileId,
    { position, view }: ReplicaPosition,
    method: string,
    timeoutMs: number,
  ): Promise<ReadonlySet<ServerId>> {
    const { self, isConnected } = this.#parts;
    const others = askingOrder(view.members, self, position.epoch.server)
      .filter(isConnected)
      .slice(0, majority(view.members.length) - 1);
    const agreeing = new Set([self]);
    const payload = encodeAgreeCall(file, position, view.number);
    await Promise.all(
      others.map(async (server) => {
        if (await this.#ask(server, method, payload, timeoutMs)) agreeing.add(server);
      }),
    );
    return agreeing;
  }

  #isAgreed(file: FileId, { position, view }: ReplicaPosition, agreeing: ReadonlySet<ServerId>): boolean {
    return hasQuorum(view, agreeing) && this.#isAtPosition(file, position, view.number);
  }

  /** Whether the replica here has this position and view, counts in a quorum, and is bound to no primary. */
  #isAtPosition(file: FileId, position: Position, viewNumber: number): boolean {
    const { store, host } = this.#parts;
    const record: ReplicaRecord | null = store.record(file);
    return record !== null && host.isUnbound(file) && agrees(record, store.trust(file), position, viewNumber);
  }

  async #ask(server: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<boolean> {
    try {
      const answer = await this.#parts.call(server, method, payload, timeoutMs);
      return answer[0] === YES[0];
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#parts.log.debug({ server, err: error }, "a server did not report its replica's position");
      return false;
    }
  }

  #isSeldom(file: FileId): boolean {
    return this.#reads.countUse(file, this.#parts.clock.nowMs()) <= READS_MAX;
  }
}

/** Orders the others for the call: the last primary first, which lacks nothing; then as operations are sent to them. */
function askingOrder(members: readonly ServerId[], self: ServerId, orderer: ServerId): ServerId[] {
  const sorted = members.toSorted();
  const from = sorted.indexOf(self);
  const others = [...sorted.slice(from + 1), ...sorted.slice(0, from)];
  const isOrderer = (server: ServerId): number => (server === orderer ? 0 : 1);
  return others.sort((a, b) => isOrderer(a) - isOrderer(b));
}

function encodeAgreeCall(file: FileId, position: Position, viewNumber: number): Uint8Array {
  return writePosition(new ByteWriter(64).uint53(file).uint53(viewNumber), position).finish();
}

function decodeAgreeCall(bytes: Uint8Array): { file: FileId; position: Position; viewNumber: number } {
  const reader = new ByteReader(bytes);
  const file = readFileId(reader);
  const viewNumber = reader.uint53();
  const position = readPosition(reader);
  reader.end();
  return { file, position, viewNumber };
}
