import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { DiskReserve } from '../storage/reserve.ts';

export const DISK_CALL = 'disk';

const CALL_MS = 2_000;
/** How often a server checks its disk, and repeats the notification while it is full. */
const REPEAT_MS = 1_000;
/** A notification is valid for this time. */
const VALID_MS = 5 * REPEAT_MS;
const HAS_SPACE = 0;
const IS_FULL = 1;

export interface FullDisksParts {
  readonly world: World;
  readonly log: Logger;
  readonly reserve: DiskReserve;
  peers(): Iterable<ServerId>;
  isConnected(server: ServerId): boolean;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  changed?(isLow: boolean): void;
}

/**
 * The servers without free space. A primary has to know its full backups: an operation that they cannot store gets no
 * majority, and its writer would wait until the time-out instead of getting the reason.
 */
export class FullDisks {
  readonly #parts: FullDisksParts;
  readonly #untilMs = new Map<ServerId, number>();
  #timer: Timer | null = null;

  constructor(parts: FullDisksParts) {
    this.#parts = parts;
    parts.reserve.changed = (isLow) => this.#changed(isLow);
  }

  isFull(server: ServerId): boolean {
    return this.#parts.world.nowMs() < (this.#untilMs.get(server) ?? -Infinity);
  }

  get isAnyFull(): boolean {
    return this.#parts.reserve.isLow || [...this.#untilMs.keys()].some((server) => this.isFull(server));
  }

  /** Handles the notification of another server about its disk. @throws MalformedError */
  serve(from: ServerId, payload: Uint8Array): Uint8Array {
    const [state] = payload;
    if (payload.length !== 1 || (state !== HAS_SPACE && state !== IS_FULL)) {
      throw new MalformedError(`Invalid disk state ${state}`);
    }
    if (state === IS_FULL) this.#untilMs.set(from, this.#parts.world.nowMs() + VALID_MS);
    else this.#untilMs.delete(from);
    return new Uint8Array(0);
  }

  start(): void {
    this.#check();
    this.#timer = this.#parts.world.every(REPEAT_MS, () => this.#check()).unref();
  }

  close(): void {
    this.#parts.reserve.changed = () => undefined;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #changed(isLow: boolean): void {
    const { log } = this.#parts;
    if (isLow)
      log.warn(
        'the disk is nearly full: writes to files are refused when most of ' +
          'their replicas have no space; delete files or add space',
      );
    else log.info('the disk has free space again');
    this.#notifyPeers(isLow);
    this.#parts.changed?.(isLow);
  }

  #check(): void {
    const { reserve, log } = this.#parts;
    const wasLow = reserve.isLow;
    try {
      reserve.measure();
    } catch (error) {
      log.debug({ err: error }, 'cannot read the free disk space');
    }
    if (wasLow && reserve.isLow) this.#notifyPeers(true);
  }

  /** Reports to all connected servers whether this disk is full. */
  #notifyPeers(isLow: boolean): void {
    const { peers, isConnected, call, log } = this.#parts;
    for (const peer of peers()) {
      if (!isConnected(peer)) continue;
      call(peer, DISK_CALL, Uint8Array.of(isLow ? IS_FULL : HAS_SPACE), CALL_MS).catch((error: unknown) => {
        log.debug({ peer, err: error }, "cannot report the disk's state to a server");
      });
    }
  }
}
