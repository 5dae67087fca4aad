import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import { maintenanceUntilMs } from '../../wire/maintenance.ts';
import type { Candidate } from '../process/placement.ts';
import type { ServerCondition } from './wanted-members.ts';

/** A server that was away may be so again soon: before this time it gets no replicas that others have. */
export const STEADY_MS = 600_000;

export interface ServerConditionsParts {
  readonly world: Pick<World, 'nowMs' | 'wallMs'>;
  /** A server is replaced after it was unreachable from the catalog's primary for this long, in milliseconds. */
  readonly replaceAfterMs: number;
  candidates(servers: readonly ServerInfo[]): readonly Candidate[];
  isConnected(server: ServerId): boolean;
}

/** Conditions of servers as the catalog's primary sees them. */
export class ServerConditions {
  readonly #parts: ServerConditionsParts;
  readonly #unreachableSinceMs = new Map<string, number>();
  readonly #reachableSinceMs = new Map<string, number>();

  constructor(parts: ServerConditionsParts) {
    this.#parts = parts;
  }

  /**
   * The servers' current conditions. How long a server is unreachable counts from when this primary noticed it, and not
   * before the end of its maintenance.
   */
  of(servers: readonly ServerInfo[]): ServerCondition[] {
    const { replaceAfterMs, isConnected } = this.#parts;
    const nowMs = this.#parts.world.nowMs();
    const wallMs = this.#parts.world.wallMs();
    const candidates = this.#parts.candidates(servers);
    const taking = new Set(candidates.map(({ id }) => id));
    const leaving = servers
      .filter(({ id }) => !taking.has(id as ServerId))
      .map(({ id, zone, labels = [], freeBytes, totalBytes }) => ({
        ...{ id: id as ServerId, zone, labels, freeBytes, totalBytes },
        registered: true,
        reachable: isConnected(id as ServerId),
      }));
    const untilMs = new Map(servers.map((server) => [server.id, maintenanceUntilMs(server)]));
    const states = new Map<string, ServerInfo['state']>(servers.map(({ id, state }) => [id, state]));
    return [...candidates, ...leaving].map((server) => {
      const { id, reachable } = server;
      if (reachable) this.#unreachableSinceMs.delete(id);
      else if (!this.#unreachableSinceMs.has(id)) this.#unreachableSinceMs.set(id, nowMs);
      const awayMs = nowMs - (this.#unreachableSinceMs.get(id) ?? nowMs);
      const unmaintainedMs = wallMs - (untilMs.get(id) ?? Number.NEGATIVE_INFINITY);
      const toBeReplaced = !reachable && Math.min(awayMs, unmaintainedMs) >= replaceAfterMs;
      return { ...server, state: states.get(id) ?? 'in', toBeReplaced, isSteady: this.#isSteady(server) };
    });
  }

  #isSteady({ id, reachable }: Candidate): boolean {
    if (!reachable) {
      this.#reachableSinceMs.delete(id);
      return false;
    }
    const nowMs = this.#parts.world.nowMs();
    const sinceMs = this.#reachableSinceMs.get(id) ?? nowMs;
    this.#reachableSinceMs.set(id, sinceMs);
    return nowMs - sinceMs >= STEADY_MS;
  }

  /** Forgets since when servers are reachable or not. */
  reset(): void {
    this.#unreachableSinceMs.clear();
    this.#reachableSinceMs.clear();
  }
}
