import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { Position } from '../../replica/epoch.ts';
import { positionCompare } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { viewVoters } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { ReplicaLag } from '../../wire/http-api.ts';
import type { ViewConflicts } from '../file/view-conflicts.ts';
import {
  type Behind,
  decodeAsked,
  decodeBehind,
  encodeAsked,
  encodeBehind,
  POSITIONS_CALL,
  POSITIONS_MAX,
  type ReplicaToCompare,
} from './positions-call.ts';
import { DIGESTS_CALL, decodeDifferent, encodeDigests, RangeDigests } from './range-digests.ts';

const CALL_MS = 10_000;
/** Pause between a peer's connection and the comparison with it: it may disconnect again soon. */
const CONNECT_PAUSE_MS = 2_000;
const LAGGING_PERIOD_MS = 30_000;
/** Pauses between checks of the replicas that lagged: the first, and the longest. */
const RECHECK_MS = 500;
const RECHECK_MS_MAX = 5_000;
/** A replica that has lagged for a shorter time is not reported: some always do (decision 26). */
const REPORTED_AFTER_MS = 1_000;
/** Files that are opened at the same time so that their primaries catch all replicas up, and the pause after each. */
const OPEN_PARALLEL = 2;
const OPEN_PAUSE_MS = 50;

interface OwnPosition extends ReplicaToCompare {
  readonly seq: number;
}

interface BehindReplica {
  /** Position of the local replica: a replica that reaches it no longer lags. */
  readonly position: Position;
  readonly versions: number;
  readonly bytes: number;
  readonly foundMs: number;
}

export interface AntiEntropyParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly everyMs: number;
  readonly connectPauseMs?: number;
  readonly reportedAfterMs?: number;
  list(after: FileId, countMax: number): readonly FileId[];
  record(file: FileId): ReplicaRecord | null;
  /** Number of the view that removed the file's replica here; 0 if none did. */
  departedView(file: FileId): number;
  sizeBytes(file: FileId): number;
  readonly conflicts: Pick<ViewConflicts, 'compare'>;
  /** In use here: its primary catches up its replicas. */
  isInUse(file: FileId): boolean;
  peers(): readonly ServerId[];
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  /** Whether the replica here has the final seal: it was sealed by a client, or preserves contents of another file. */
  isFinal(file: FileId): boolean;
  isWithoutServers(file: FileId): Promise<boolean>;
  /** Uses the file like a client, so that it gets a primary. */
  open(file: FileId): Promise<unknown>;
  /** Whether the peer runs a release with digests of ranges; an earlier one compares all positions. */
  hasDigests(peer: ServerId): boolean;
}

/**
 * Finds replicas that lag while their files are unused: a server that reconnects gets only the changes of files in use.
 * Each server compares its replicas with those of the others, and opens files whose other replica lags behind its own;
 * the new primary catches up all replicas. Digests of ranges of files come first: only what differs is compared.
 */
export class AntiEntropy {
  readonly #parts: AntiEntropyParts;
  readonly #digests: RangeDigests;
  readonly #behind = new Map<ServerId, Map<FileId, BehindReplica>>();
  readonly #comparisonTimers = new Map<ServerId, Timer>();
  /** Peers that no comparison has ended with since they connected, with the number of that connection. */
  readonly #uncompared = new Map<ServerId, number>();
  #connections = 0;
  #timer: Timer | null = null;
  #recheckTimer: Timer | null = null;
  #queue: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(parts: AntiEntropyParts) {
    this.#parts = parts;
    this.#digests = new RangeDigests(parts);
    this.#schedule();
  }

  /** Replicas found to lag that have not caught up since. */
  lag(): ReplicaLag {
    const beforeMs = this.#parts.world.nowMs() - (this.#parts.reportedAfterMs ?? REPORTED_AFTER_MS);
    const lagging = [...this.#behind.values()].flatMap((replicas) => [...replicas.values()]);
    return lagOf(lagging.filter(({ foundMs }) => foundMs <= beforeMs));
  }

  /** Numbers of replicas that were found to lag and have not caught up since, by server. */
  behind(): ReadonlyMap<ServerId, number> {
    return new Map([...this.#behind].map(([peer, replicas]) => [peer, replicas.size]));
  }

  /** Connected servers whose replicas may lag without this server knowing it. */
  uncompared(): readonly ServerId[] {
    return this.#parts.peers().filter((peer) => this.#uncompared.has(peer));
  }

  connected(peer: ServerId): void {
    if (this.#closed) return;
    this.#uncompared.set(peer, ++this.#connections);
    this.#comparisonTimers.get(peer)?.cancel();
    const timer = this.#parts.world.after(this.#parts.connectPauseMs ?? CONNECT_PAUSE_MS, () => {
      this.#comparisonTimers.delete(peer);
      void this.#oneByOne(() => this.compare(peer)).then(() => {
        // If replicas lag, or the comparison failed, the next one is earlier.
        if (this.#isAnyBehind || this.#uncompared.has(peer)) this.#schedule();
      });
    });
    this.#comparisonTimers.set(peer, timer);
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#recheckTimer?.cancel();
    for (const timer of this.#comparisonTimers.values()) timer.cancel();
    this.#comparisonTimers.clear();
  }

  /** The record of a replica here changed, or the replica was removed. */
  changed(file: FileId): void {
    this.#digests.changed(file);
  }

  /** Answers a peer: in which ranges of files its replicas differ from those here. */
  serveDigests(from: ServerId, payload: Uint8Array): Promise<Uint8Array> {
    return this.#digests.serve(from, payload);
  }

  /** Answers a peer: which of its replicas are ahead of those here. */
  serve(from: ServerId, payload: Uint8Array): Uint8Array {
    const behind: Behind[] = [];
    for (const { file, position, view } of decodeAsked(payload)) {
      const record = this.#parts.record(file);
      // This server has left the file's members by a later view: it need not have the replica.
      if (record === null && view !== undefined && view.number <= this.#parts.departedView(file)) continue;
      if (record === null) behind.push([file, null]);
      else if (view !== undefined && this.#parts.conflicts.compare(file, record.view, view, from)) continue;
      else if (positionCompare(positionOf(record), position) < 0) behind.push([file, record.seq]);
    }
    return encodeBehind(behind);
  }

  /** Whether a server has everything of a file up to a position. */
  async hasPosition(server: ServerId, file: FileId, position: Position): Promise<boolean> {
    const behind = await this.#ask(server, [{ file, position }]);
    return behind.length === 0;
  }

  /** Whether a server's replica has exactly this position: everything up to it, and no next operation. */
  async isAt(server: ServerId, file: FileId, position: Position): Promise<boolean> {
    const next = { ...position, seq: position.seq + 1 };
    const [found, ...more] = await this.#ask(server, [
      { file, position },
      { file, position: next },
    ]);
    return found !== undefined && more.length === 0;
  }

  /** Compares all replicas that this server and `peer` both should have, and opens the files of those that lag. */
  async compare(peer: ServerId): Promise<void> {
    const { sizeBytes, isInUse, log } = this.#parts;
    const before = this.#behind.get(peer);
    const connection = this.#uncompared.get(peer);
    const found = new Map<FileId, BehindReplica>();
    for await (const asked of this.#positionsToCompare(peer)) {
      if (this.#closed) break;
      const behind = new Map(await this.#ask(peer, asked));
      for (const { file, position, seq } of asked) {
        const theirs = behind.get(file);
        if (theirs === undefined || isInUse(file)) continue;
        found.set(file, {
          position,
          versions: Math.max(0, seq - (theirs ?? 0)),
          bytes: theirs === null ? sizeBytes(file) : 0,
          foundMs: before?.get(file)?.foundMs ?? this.#parts.world.nowMs(),
        });
      }
    }
    this.#behind.set(peer, found);
    // A peer that has connected again meanwhile may have lost what was compared.
    if (!this.#closed && this.#uncompared.get(peer) === connection) this.#uncompared.delete(peer);
    if (found.size === 0) return;
    log.info(
      { peer, ...lagOf([...found.values()]) },
      'anti-entropy found replicas that are behind: opening their files to catch up',
    );
    this.#recheckIn(RECHECK_MS);
    await this.#openAll([...found.keys()]);
  }

  /** Positions of files here that may differ from the peer's, as many as one call has. */
  async *#positionsToCompare(peer: ServerId): AsyncGenerator<readonly OwnPosition[]> {
    const { self, world, record, isInUse } = this.#parts;
    const positions: OwnPosition[] = [];
    for await (const page of this.#pagesToCompare(peer)) {
      for (const file of page) {
        if (isInUse(file)) continue;
        const own = record(file);
        // A file that was never written does not lag.
        if (own === null || own.installed.counter === 0) continue;
        // A replica that was left over by a change of members says nothing about the members' replicas.
        const voters = viewVoters(own.view);
        if (!voters.includes(self) || !voters.includes(peer)) continue;
        positions.push({ file, position: positionOf(own), seq: own.seq, view: own.view });
      }
      while (positions.length >= POSITIONS_MAX) yield positions.splice(0, POSITIONS_MAX);
      if (this.#closed) return;
      await world.nextTick();
    }
    if (positions.length > 0) yield positions;
  }

  /** Files here that may differ from the peer's. */
  async *#pagesToCompare(peer: ServerId): AsyncGenerator<readonly FileId[]> {
    const { list, call } = this.#parts;
    if (this.#parts.hasDigests(peer)) {
      for await (const digests of this.#digests.all(peer)) {
        const answer = await call(peer, DIGESTS_CALL, encodeDigests(digests), CALL_MS);
        for (const range of decodeDifferent(answer, digests)) yield this.#digests.filesIn(range);
      }
      return;
    }
    for (let page = list(0 as FileId, POSITIONS_MAX); page.length > 0; ) {
      yield page;
      page = list(page.at(-1) ?? (0 as FileId), POSITIONS_MAX);
    }
  }

  get #isAnyBehind(): boolean {
    return [...this.#behind.values()].some((replicas) => replicas.size > 0);
  }

  #recheckIn(pauseMs: number): void {
    this.#recheckTimer?.cancel();
    this.#recheckTimer = this.#parts.world.after(pauseMs, () => {
      this.#recheckTimer = null;
      const rechecks = [...this.#behind.keys()].map((peer) => this.#attempt(() => this.#recheck(peer)));
      void Promise.all(rechecks).then(() => {
        if (this.#closed || this.#recheckTimer !== null || !this.#isAnyBehind) return;
        this.#recheckIn(Math.min(2 * pauseMs, RECHECK_MS_MAX));
      });
    });
  }

  /** Forgets replicas that have caught up, page by page: files are opened in this order, so later pages lag longer. */
  async #recheck(peer: ServerId): Promise<void> {
    const replicas = this.#behind.get(peer);
    while (replicas !== undefined && replicas.size > 0 && !this.#closed) {
      for (const file of replicas.keys()) if (!this.#isOf(file, peer)) replicas.delete(file);
      const asked = [...replicas].slice(0, POSITIONS_MAX).map(([file, { position }]) => ({ file, position }));
      if (asked.length === 0) return;
      const left = new Map(await this.#ask(peer, asked));
      for (const { file } of asked) if (!left.has(file)) replicas.delete(file);
      if (left.size > 0) return;
    }
  }

  #isOf(file: FileId, server: ServerId): boolean {
    const record = this.#parts.record(file);
    return record !== null && viewVoters(record.view).includes(server);
  }

  #schedule(): void {
    if (this.#closed) return;
    const { everyMs } = this.#parts;
    const isDue = this.#isAnyBehind || this.uncompared().length > 0;
    const pauseMs = isDue ? Math.min(everyMs, LAGGING_PERIOD_MS) : everyMs;
    this.#timer?.cancel();
    this.#timer = this.#parts.world.after(pauseMs, () => {
      void this.#oneByOne(() => this.#compareAll()).then(() => this.#schedule());
    });
  }

  /** Compares replicas with those of each peer, one after the other. Called periodically, sooner if any is behind. */
  async #compareAll(): Promise<void> {
    const peers = this.#parts.peers();
    for (const known of [...this.#behind.keys()]) if (!peers.includes(known)) this.#behind.delete(known);
    for (const peer of peers) {
      if (this.#closed) return;
      await this.#attempt(() => this.compare(peer));
    }
  }

  /** One comparison at a time, so that a starting cluster is not flooded. */
  #oneByOne(work: () => Promise<void>): Promise<void> {
    this.#queue = this.#queue.then(() => this.#attempt(work));
    return this.#queue;
  }

  async #attempt(work: () => Promise<void>): Promise<void> {
    if (this.#closed) return;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ServiceError || error instanceof MalformedError)) throw error;
      this.#parts.log.debug({ err: error }, 'anti-entropy failed; trying again later');
    }
  }

  async #openAll(files: readonly FileId[]): Promise<void> {
    const waiting = files.values();
    const worker = async (): Promise<void> => {
      for (const file of waiting) {
        if (this.#closed) return;
        await this.#attempt(() => this.#open(file));
        await this.#parts.world.sleep(OPEN_PAUSE_MS);
      }
    };
    await Promise.all(Array.from({ length: OPEN_PARALLEL }, worker));
  }

  /** Opens a file, but not one without members, which preserves contents: a majority may still lack it. */
  async #open(file: FileId): Promise<void> {
    const { isFinal, isWithoutServers, open } = this.#parts;
    if (isFinal(file) && (await isWithoutServers(file)))
      for (const replicas of this.#behind.values()) replicas.delete(file);
    else await open(file);
  }

  /** Asks a peer which of its replicas lack operations up to these positions. @returns those, with their last number */
  async #ask(
    peer: ServerId,
    asked: readonly ReplicaToCompare[],
  ): Promise<readonly [FileId, number | null][]> {
    const payload = encodeAsked(asked);
    const answer = await this.#parts.call(peer, POSITIONS_CALL, payload, CALL_MS);
    return decodeBehind(answer);
  }
}

function lagOf(replicas: readonly BehindReplica[]): ReplicaLag {
  const lag = { files: replicas.length, versions: 0, bytes: 0 };
  for (const { versions, bytes } of replicas) {
    lag.versions += versions;
    lag.bytes += bytes;
  }
  return lag;
}

function positionOf({ installed, seq }: ReplicaRecord): Position {
  return { epoch: installed, seq };
}
