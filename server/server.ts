import type { Logger } from 'pino';
import type { World } from '../base/world.ts';
import { compose, type Parts } from './compose/compose.ts';
import type { ServerConfig } from './config/config.ts';
import { silencesOf } from './config/timing.ts';
import { planCluster } from './membership/cluster-plan.ts';
import { succeedsWithin } from './process/bounded.ts';
import { systemMachine } from './process/machine.ts';
import type { Surroundings } from './process/surroundings.ts';
import { Security } from './security/security.ts';
import { ballastRelease } from './storage/ballast.ts';
import { DataFolder, fullFolder } from './storage/data-folder.ts';
import { isCorruption, isNoSpace } from './storage/failures.ts';
import { damagedFolder, FolderError, type FolderErrorCode } from './storage/folder-error.ts';
import { setAside } from './storage/set-aside.ts';

/** Longest wait for the release of files; their leases end anyway. */
const RELEASE_MS_MAX = 2_000;
/** Longest wait for calls of the router in progress, which other servers answer; requests have longer. */
const CALLS_MS_MAX = 300;

/** Actions that let a failed start succeed, by error code. @returns false if nothing was done */
const REMEDIES: Partial<
  Record<FolderErrorCode, (config: ServerConfig, error: FolderError, log: Logger) => boolean>
> = {
  'no-space': ({ data }, { message: reason }, log) => {
    if (!ballastRelease(data)) return false;
    log.warn({ reason }, 'the disk is full: starting with the reserved space; delete files or add space');
    return true;
  },
  damaged: ({ data, rebuild }, { message: reason }, log) => {
    if (!rebuild) return false;
    log.warn(
      { aside: setAside(data), reason },
      'moved the damaged data folder aside and created an empty one (--rebuild)',
    );
    return true;
  },
};

/** One server of a cluster. `start` resolves when it listens; `/readyz` shows whether it can serve yet. */
export class Server {
  readonly #world: World;
  readonly #parts: Parts;

  private constructor(world: World, parts: Parts) {
    this.#world = world;
    this.#parts = parts;
  }

  /** @throws FolderError if the data folder must not be used, or the error of listening */
  static async start(config: ServerConfig, surroundings: Surroundings): Promise<Server> {
    // A damaged folder may be on a full disk: each remedy is tried once.
    const tried = new Set<FolderErrorCode>();
    for (;;) {
      try {
        return await Server.#begin(config, surroundings);
      } catch (error) {
        if (!(error instanceof FolderError) || tried.has(error.code)) throw error;
        tried.add(error.code);
        if (REMEDIES[error.code]?.(config, error, surroundings.log) !== true) throw error;
      }
    }
  }

  static async #begin(config: ServerConfig, surroundings: Surroundings): Promise<Server> {
    const { world, log, machine = systemMachine } = surroundings;
    const { cluster, id: server } = config;
    const { bootId, memoryFolder } = machine;
    const security = new Security(world, server, config, log);
    const folder = DataFolder.open(config.data, {
      ...{ world, cluster, server, silences: silencesOf(config), rebuild: config.rebuild },
      ...(bootId === undefined ? {} : { bootId }),
      ...(memoryFolder === undefined ? {} : { memoryFolder }),
    });
    try {
      const plan = await planCluster(config, { folder, world, log, machine, tls: security.peers });
      return new Server(world, await compose(plan, folder, security, surroundings));
    } catch (error) {
      folder.close();
      if (isCorruption(error)) throw damagedFolder(config.data, error);
      if (isNoSpace(error)) throw fullFolder(config.data, error);
      throw error;
    }
  }

  measureProcess(): void {
    this.#parts.metrics.addProcess();
  }

  /** Reads certificates and tokens again; only connections of revoked clients end. @returns whether all were good */
  reload(): boolean {
    return this.#parts.security.reload();
  }

  filesInUse(): string[] {
    return this.#parts.idle.inUse();
  }

  /** Releases all leases and ends; what cannot be finished is left to the next start. */
  async stop(): Promise<void> {
    const {
      app,
      drain,
      s3,
      gateway,
      upkeeps,
      idle,
      lease,
      named,
      host,
      wakes,
      transport,
      store,
      catalogMember,
      volumeCatalogs,
      catalogLists,
      volumeMoves,
      primaryReturn,
      folder,
      scrubber,
      membership,
      fullDisks,
      shortages,
      observer,
      hub,
      security,
    } = this.#parts;
    const world = this.#world;
    // Requests are answered, by the servers that take over, until everything is handed over.
    drain.begin();
    s3?.drain.begin();
    security.close();
    hub.close();
    named.watches.close();
    observer.close();
    membership.close();
    fullDisks.close();
    shortages.close();
    await upkeeps.close();
    catalogLists.close();
    volumeMoves.close();
    await primaryReturn.close();
    await volumeCatalogs.stop();
    scrubber.close();
    lease.stopCompeting();
    gateway.router.stopCompeting();
    // Files first: their next primaries may ask the catalog, which must have a primary then.
    await idle.releaseAll(RELEASE_MS_MAX);
    await volumeCatalogs.resign();
    await catalogMember.resign();
    lease.closeDriver();
    await Promise.all([drain.finish(), s3?.drain.finish()]);
    named.close();
    await succeedsWithin(world, gateway.router.callsEnded(), CALLS_MS_MAX);
    // The HTTP server waits for the peers' connections, which the transport has to end.
    const ending = Promise.all([app.close(), s3?.app.close()]);
    await gateway.close();
    await transport.close();
    await ending;
    host.close();
    wakes.close();
    await store.close();
    await volumeCatalogs.closeStores();
    await catalogMember.store?.close();
    folder.close();
  }
}
