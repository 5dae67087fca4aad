import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { Command, CommandResults, Query, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { StoreSpace } from '../storage/store.ts';
import type { KnownServers } from './known-servers.ts';
import { knownServerOf } from './known-servers.ts';

const RETRY_MS = 1_000;
const PERIOD_MS = 60_000;
/** A change of free space by more than this part of the disk is reported. */
const SPACE_STEP = 0.01;

type RegisterCommand = Extract<Command, { kind: 'server-register' }>;
type ServersQuery = Extract<Query, { kind: 'servers' }>;

export interface RegistrarParts {
  readonly self: ServerId;
  readonly url: string;
  readonly zone: string | null;
  readonly storageId: string;
  readonly world: World;
  readonly log: Logger;
  readonly known: KnownServers;
  readonly periodMs?: number;
  space(): Promise<StoreSpace>;
  /** Called with the first file id that no earlier disk of this server can have had. */
  firstFileKnown(file: FileId): void;
  replaced(): void;
  command(command: RegisterCommand): Promise<CommandResults['server-register']>;
  query(query: ServersQuery): Promise<QueryResults['servers']>;
}

/**
 * Registers this server and its free space in the catalog, and learns the other servers. It sends a command only if the
 * catalog's entry is wrong: an idle cluster writes nothing.
 */
export class Registrar {
  readonly #parts: RegistrarParts;
  #timer: Timer | null = null;
  #registered = false;
  #closed = false;
  #warned = false;

  constructor(parts: RegistrarParts) {
    this.#parts = parts;
  }

  start(): void {
    void this.#round();
  }

  get registered(): boolean {
    return this.#registered;
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  /** Registers this server at the catalog, again and again, until the catalog has another disk under its name. */
  async #round(): Promise<void> {
    let pauseMs = this.#parts.periodMs ?? PERIOD_MS;
    try {
      await this.#register();
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'precondition-failed') {
        this.#parts.replaced();
        return;
      }
      pauseMs = RETRY_MS;
      this.#parts.log.debug({ err: error }, 'this server is not registered yet');
    }
    if (!this.#closed) this.#timer = this.#parts.world.after(pauseMs, () => void this.#round());
  }

  async #register(): Promise<void> {
    const { self, url, zone, storageId, known, log } = this.#parts;
    const { servers, settings = null } = await this.#parts.query({ kind: 'servers', counts: false });
    const { freeBytes, totalBytes } = await this.#parts.space();
    let own = servers.find(({ id }) => id === self) ?? null;
    if (own?.state !== 'out' && (!this.#registered || !this.#isUpToDate(own, freeBytes, totalBytes))) {
      const command: RegisterCommand = {
        ...{ kind: 'server-register', id: self, url, storageId, freeBytes, totalBytes },
        ...(zone === null ? {} : { zone }),
      };
      ({ server: own } = await this.#parts.command(command));
      this.#parts.firstFileKnown(own.bornAt as FileId);
      this.#registered = true;
    }
    if (own?.state === 'out' && !this.#warned) {
      this.#warned = true;
      log.error(
        'this server was removed from the cluster: stop it, or add it ' +
          `again with "leasehold server add ${self} ${url}"`,
      );
    }
    const others = servers.filter(({ id }) => id !== self);
    known.adoptCatalogList(
      [...others, ...(own === null ? [] : [own])].map(knownServerOf),
      null,
      null,
      settings,
    );
  }

  #isUpToDate(own: ServerInfo | null, freeBytes: number, totalBytes: number): boolean {
    const { url, zone, storageId } = this.#parts;
    return (
      own !== null &&
      own.url === url &&
      own.storageId === storageId &&
      (zone === null || own.zone === zone) &&
      own.totalBytes === totalBytes &&
      Math.abs(own.freeBytes - freeBytes) <= totalBytes * SPACE_STEP
    );
  }
}
