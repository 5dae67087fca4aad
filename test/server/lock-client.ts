/** Clients that lock a file of a small cluster, for tests of locks. */
import assert from 'node:assert/strict';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { LockBody, WireLock } from '../../wire/lock-api.ts';
import { delay, FILE, LOCK_LEASE_MS, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

type Ending = { after(work: () => void): void };

export async function started(t: Ending) {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => {
    cluster.close();
    assert.deepEqual(cluster.fatal, []);
  });
  await cluster.ready();
  return { cluster, servers: cluster.servers as [SmallServer, SmallServer, SmallServer] };
}

export type Wish = Pick<LockBody, keyof WireLock>;
export const ALL: WireLock = {
  ...{ owner: 'o', kind: 'posix', type: 'exclusive', pid: 1 },
  ...{ start: 0, end: Number.MAX_SAFE_INTEGER },
};

/** A client that sends what a test makes it send, and remembers nothing. */
export class Client {
  readonly id: number;
  #stamp = 0;

  constructor(id: number) {
    this.id = id;
  }

  /** Number of its newest message. */
  get stamp(): number {
    return this.#stamp;
  }

  body(wish: Partial<Wish>, waitMs = 0): LockBody {
    const stamp = ++this.#stamp;
    return { ...ALL, ...wish, client: this.id, stamp, number: stamp, pending: [stamp], waitMs };
  }

  lock(server: SmallServer, wish: Partial<Wish> = {}, waitMs = 0) {
    return server.files.lock(FILE, this.body(wish, waitMs));
  }

  /** @param since the stamp that changes under the other locks name from now on */
  unlock(server: SmallServer, wish: Partial<Wish>, since: number) {
    return server.files.lock(FILE, { ...this.body({ ...wish, type: 'unlock' }), since });
  }

  /** @param since the client's stamp when it got the first of the locks */
  renew(server: SmallServer, locks: readonly WireLock[] = [ALL], since?: number) {
    const stamp = ++this.#stamp;
    const claim = { client: this.id, stamp, pending: [], locks: [...locks] };
    return server.files.renewLocks(FILE, since === undefined ? claim : { ...claim, since });
  }

  /**
   * Renews in time until it is stopped, at whichever server is primary.
   * @returns the lost locks
   */
  async keep(servers: () => readonly SmallServer[], until: AbortSignal): Promise<boolean> {
    let lost = false;
    while (!until.aborted) {
      for (const server of servers()) {
        const renewed = await this.renew(server).catch(() => null);
        lost ||= (renewed?.lost.length ?? 0) > 0;
      }
      await delay(LOCK_LEASE_MS / 10);
    }
    return lost;
  }
}

/** A file whose primary is the first server, and a client that has locked all of it. */
export async function locked(t: Ending) {
  const { cluster, servers } = await started(t);
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const [holder, other] = [new Client(1), new Client(2)];
  await holder.lock(a);
  return { cluster, a, b, c, holder, other };
}

/** No message passes between this server and all others any more. */
export function cutOff(cluster: SmallCluster, { id }: SmallServer): void {
  for (const peer of cluster.servers) if (peer.id !== id) cluster.network.cut(id, peer.id);
}

export function refused(code: ErrorCode): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ServiceError);
    assert.equal(error.code, code, error.message);
    return true;
  };
}

/** Asks one server until it is the primary and gives a final answer. */
export async function atPrimary<Result>(ask: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof ServiceError) || !['not-primary', 'no-majority', 'busy'].includes(error.code))
        throw error;
      await delay(5);
    }
  }
}
