/** Directed runs of the system: what a script can say, and the names that scripts use. */
import type { ServerId } from '../../base/ids.ts';
import type { ReplicaMessage } from '../../replica/messages.ts';
import type { FileWish as Wish } from './system-subject.ts';
import { type Handle, type SystemOptions, SystemWorld } from './system-world.ts';
import { Violation } from './violation.ts';

type Write = Extract<Wish, { readonly kind: 'write' }>;

export const A = 'a' as ServerId;
export const B = 'b' as ServerId;
export const C = 'c' as ServerId;
export const D = 'd' as ServerId;
export const E = 'e' as ServerId;

/**
 * Longer than what a script does with one primary. What a dead one was promised lasts as long, so whoever leads
 * after it waits for that.
 */
export const LONG_MS = 2_000;
/** Enough for a reset or a write, and less than a heartbeat. */
export const SHORT_MS = 40;
/** Enough for several heartbeats. */
export const HEARTBEATS_MS = 350;

export const X: Write = { kind: 'write', object: 0, value: 'xxxxxxxx' };
export const Y: Write = { kind: 'write', object: 0, value: 'yyyyyyyy' };
export const Z: Write = { kind: 'write', object: 0, value: 'zzzzzzzz' };

/** A system under a script's control. */
export class Script {
  readonly system: SystemWorld;
  /** Servers that no message reaches or leaves. */
  readonly isolated = new Set<ServerId>();
  /** Single messages: what happens to them; null for nothing special. */
  rule: (from: ServerId, to: ServerId, message: ReplicaMessage | null) => 'hold' | 'drop' | null = () => null;
  #session = 0;

  constructor(options: Partial<SystemOptions>) {
    this.system = new SystemWorld({ seed: 1, servers: 3, leases: 'scripted', ...options });
    this.system.reaches = (from, to) => !this.isolated.has(from) && !this.isolated.has(to);
    this.system.world.intercept = ({ from, to, message }) => {
      if (this.isolated.has(from) || this.isolated.has(to)) return 'drop';
      return this.rule(from, to, message.kind === 'replica' ? message.frame.message : null) ?? 'pass';
    };
  }

  run(durationMs = SHORT_MS): void {
    this.system.world.runFor(durationMs);
  }

  /** Gives a lease, again if need be, and waits until its holder is the primary. */
  lead(server: ServerId, durationMs = LONG_MS): void {
    const { world } = this.system;
    const untilMs = world.nowMs + 2 * LONG_MS;
    while (world.nowMs < untilMs && this.role(server) !== 'active') {
      this.system.grant(server, durationMs);
      world.runFor(durationMs / 2, () => this.role(server) === 'active');
    }
    this.run(5);
    this.expect(this.role(server) === 'active', `${server} becomes primary`);
  }

  role(server: ServerId): string | undefined {
    return this.system.process(server).replica?.status(0).role;
  }

  /** For how long a majority still keeps the primary's guard. */
  guardMs(server: ServerId): number {
    return this.system.process(server).replica?.servesForMs(this.system.processMs(server)) ?? 0;
  }

  /** A change by a client of its own, and time for it to commit. */
  write(server: ServerId, wish: Wish): Handle {
    const handle = this.system.change(server, ++this.#session, wish);
    this.run();
    return handle;
  }

  /** A read, and time for it. */
  read(server: ServerId, what = '0'): Handle {
    const handle = this.system.read(server, what);
    this.run();
    return handle;
  }

  /** What clients of the server see: null where they are not answered. */
  shown(server: ServerId, what = '0'): string | null {
    const { answer } = this.read(server, what);
    return answer?.kind === 'value' ? answer.value : null;
  }

  restart(server: ServerId): void {
    this.system.world.crash(server);
    this.system.world.restart(server);
  }

  /** What the script relies on; a planted bug may also show here. */
  expect(holds: boolean, claim: string): void {
    if (!holds) throw new Violation(`Expected: ${claim}`);
  }
}

export function directed(
  options: Partial<SystemOptions>,
  script: (script: Script) => void,
): () => string | null {
  return () => {
    try {
      const playing = new Script(options);
      script(playing);
      playing.system.observers.judge();
      return null;
    } catch (error) {
      if (error instanceof Error) return error.message;
      throw error;
    }
  };
}
