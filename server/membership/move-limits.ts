import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { MoveRates } from '../config/config.ts';

/** Files that move at a time at each server, as source, target or member that stays. */
const MOVES_MAX = 96;
/** After a pause, a server may exceed its rates by what they permit in this time, in milliseconds. */
const BURST_MS = 250;

/** What the limits know of a move. */
export interface LimitedMove {
  /** Servers with the replicas before or after. */
  readonly members: ReadonlySet<ServerId>;
  /** Servers that give or get a replica. */
  readonly changed: readonly ServerId[];
  /** Servers that send or receive the contents; none if no replica is added. */
  readonly copying: readonly ServerId[];
  readonly sizeBytes: number;
}

interface Load {
  count: number;
  /** Earlier moves have used the rates up to these times. */
  filesUsedMs: number;
  bytesUsedMs: number;
}

/** Bounds the moves at each server, by their number at a time, and by files and bytes per second. */
export class MoveLimits {
  readonly #world: Pick<World, 'nowMs'>;
  readonly #rates: MoveRates;
  readonly #loads = new Map<ServerId, Load>();

  constructor(world: Pick<World, 'nowMs'>, rates: MoveRates) {
    this.#world = world;
    this.#rates = rates;
  }

  /** @returns for how long the move has to wait for the rates, in milliseconds; `Infinity`: until another one ends */
  waitMs({ members, changed, copying }: LimitedMove): number {
    const nowMs = this.#world.nowMs();
    for (const server of members) if ((this.#loads.get(server)?.count ?? 0) >= MOVES_MAX) return Infinity;
    let waitMs = 0;
    for (const server of changed) waitMs = Math.max(waitMs, this.#loadOf(server).filesUsedMs - nowMs);
    for (const server of copying) waitMs = Math.max(waitMs, this.#loadOf(server).bytesUsedMs - nowMs);
    return waitMs;
  }

  begin({ members, changed, copying, sizeBytes }: LimitedMove): void {
    const earliestMs = this.#world.nowMs() - BURST_MS;
    for (const server of members) this.#loadOf(server).count += 1;
    for (const server of changed) {
      const load = this.#loadOf(server);
      load.filesUsedMs = Math.max(load.filesUsedMs, earliestMs) + 1_000 / this.#rates.filesPerS;
    }
    for (const server of copying) {
      const load = this.#loadOf(server);
      load.bytesUsedMs = Math.max(load.bytesUsedMs, earliestMs) + this.#bytesMs(sizeBytes);
    }
  }

  /** The move failed: of its bytes it counts only what the rate permits since it began. */
  giveBack({ copying, sizeBytes }: LimitedMove, begunMs: number): void {
    const unusedMs = this.#bytesMs(sizeBytes) - (this.#world.nowMs() - begunMs);
    if (unusedMs > 0) for (const server of copying) this.#loadOf(server).bytesUsedMs -= unusedMs;
  }

  end({ members }: LimitedMove): void {
    for (const server of members) this.#loadOf(server).count -= 1;
  }

  /** For how long so many bytes use the rate. */
  #bytesMs(sizeBytes: number): number {
    return (sizeBytes * 1_000) / this.#rates.bytesPerS;
  }

  #loadOf(server: ServerId): Load {
    let load = this.#loads.get(server);
    if (load === undefined) {
      load = { count: 0, filesUsedMs: Number.NEGATIVE_INFINITY, bytesUsedMs: Number.NEGATIVE_INFINITY };
      this.#loads.set(server, load);
    }
    return load;
  }
}
