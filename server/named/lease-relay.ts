import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { StreamedAnswer } from '../../platform/http-channel.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { leaseEventOf, timedLeaseState } from '../../wire/lease-changes.ts';
import type { LeaseEvent } from '../../wire/named-lease-api.ts';
import { StreamEventReader } from '../../wire/sse.ts';
import { type LeaseSource, type LeaseWatcher, membersToAsk } from './lease-watches.ts';

/** Heartbeats that a member may miss before the watch moves to another one. */
const HEARTBEATS_MISSED = 3;
const BACKOFF_FIRST_MS = 50;
const BACKOFF_MAX_MS = 1_000;

export interface RelaySourceParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly heartbeatMs: number;
  membersOf(name: string): readonly ServerId[];
  isConnected(server: ServerId): boolean;
  stream(server: ServerId, path: string, signal: AbortSignal): Promise<StreamedAnswer>;
}

/** Watches a name at one of its members, and at another one when that one fails. */
export class RelaySource implements LeaseSource {
  readonly #parts: RelaySourceParts;
  readonly #open = new Map<AbortController, LeaseWatcher>();

  constructor(parts: RelaySourceParts) {
    this.#parts = parts;
  }

  open(name: string, watcher: LeaseWatcher): () => void {
    const controller = new AbortController();
    this.#open.set(controller, watcher);
    void this.#run(name, watcher, controller.signal);
    return () => {
      this.#open.delete(controller);
      controller.abort();
    };
  }

  close(): void {
    for (const [controller, watcher] of [...this.#open]) {
      this.#open.delete(controller);
      controller.abort();
      watcher.ended();
    }
  }

  async #run(name: string, watcher: LeaseWatcher, signal: AbortSignal): Promise<void> {
    const { self, log, membersOf, isConnected } = this.#parts;
    let backoffMs = BACKOFF_FIRST_MS;
    let last: ServerId | null = null;
    while (!signal.aborted) {
      const members = membersToAsk(membersOf(name), self, isConnected);
      const member: ServerId | undefined = members.find((candidate) => candidate !== last) ?? members[0];
      if (member === undefined) return watcher.ended();
      last = member;
      try {
        await this.#relay(name, member, watcher, signal, () => {
          backoffMs = BACKOFF_FIRST_MS;
        });
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Error)) throw error;
        log.debug(
          { name, member, reason: error.message },
          'a watch of a named lease moves to another member',
        );
      }
      await this.#parts.world.sleep(backoffMs, { signal }).catch(() => {
        // Aborted: the condition of the loop ends the watch.
      });
      backoffMs = Math.min(2 * backoffMs, BACKOFF_MAX_MS);
    }
  }

  /** Passes on a member's events until its stream ends, or it misses heartbeats. @throws Error */
  async #relay(
    name: string,
    member: ServerId,
    watcher: LeaseWatcher,
    signal: AbortSignal,
    received: () => void,
  ): Promise<void> {
    const stalled = new AbortController();
    const silentMs = HEARTBEATS_MISSED * this.#parts.heartbeatMs;
    const { world } = this.#parts;
    const startTimer = (): Timer =>
      world.after(silentMs, () => stalled.abort(new Error(`${member} is silent`)));
    let timer = startTimer();
    try {
      const path = `/v1/leases/${encodeURIComponent(name)}/watch`;
      const ended = AbortSignal.any([signal, stalled.signal]);
      const { statusCode, body } = await this.#parts.stream(member, path, ended);
      const reader = new StreamEventReader();
      for await (const text of body) {
        if (statusCode !== 200) break;
        timer.cancel();
        timer = startTimer();
        for (const { event, data } of reader.push(text)) {
          received();
          watcher.changed(timedLeaseState(eventOf(event, data), world.nowMs()));
        }
      }
      if (statusCode !== 200) throw new Error(`${member} answered ${statusCode}`);
    } finally {
      timer.cancel();
    }
  }
}

/** @throws MalformedError, which ends the stream */
function eventOf(kind: string, data: string): LeaseEvent {
  try {
    const event = leaseEventOf(kind, data);
    if (event !== null) return event;
  } catch (cause) {
    throw new MalformedError('An event in a watch of a lease is not JSON', { cause });
  }
  throw new MalformedError(`Unknown event "${kind}" in a watch of a lease`);
}
