import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { type View, viewVoters } from '../../replica/view.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { CreationListener } from '../routing/service-interfaces.ts';
import type { FileStore } from '../storage/store.ts';
import type { Authorities } from './authority.ts';
import { type FileReplicas, viewOf } from './file-replicas.ts';
import type { ReplicaHost } from './replica-host.ts';

export interface FileCreationsParts {
  readonly self: ServerId;
  readonly log: Logger;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly authorities: Authorities;
  readonly replicas: FileReplicas;
}

/** This server is the creating server of files that commands create at its replica of the catalog. */
export class FileCreations implements CreationListener {
  readonly #parts: FileCreationsParts;

  constructor(parts: FileCreationsParts) {
    this.#parts = parts;
  }

  /** Acquires the lease while the command runs: without an epoch it permits nothing, so the file need not exist yet. */
  creating(attributes: Attributes): void {
    const { lease, authorities } = this.#parts;
    const file = attributes.inode as FileId;
    const view = viewOf(attributes);
    if (!this.#mayCreate(file, view)) return;
    if (lease.isUsable() && authorities.successor(view) === null) lease.open(file, view);
  }

  /** The command failed: another server may create another file of that number. */
  notCreated(attributes: Attributes): void {
    const { lease, host } = this.#parts;
    const file = attributes.inode as FileId;
    if (host.loaded(file) !== null) return;
    lease.release(file);
    lease.close(file);
  }

  created(attributes: Attributes): void {
    const { host, lease, log, replicas } = this.#parts;
    const file = attributes.inode as FileId;
    const view = viewOf(attributes);
    if (!this.#mayCreate(file, view)) return;
    try {
      lease.assertUsable();
      const driver = host.create(file, view, attributes.objectBytes);
      replicas.assertMayBecomePrimary(driver);
      replicas.noteMark(driver, attributes);
      driver.step({ kind: 'created' });
      // The new replica has to learn of a lease that was acquired before.
      if (lease.view(file).own) lease.close(file);
      lease.open(file, view);
    } catch (error) {
      // Then the server that gets the first write becomes primary.
      if (!(error instanceof ServiceError)) throw error;
      this.notCreated(attributes);
      log.debug({ file, err: error }, 'cannot stay primary of a file that was created here');
    }
  }

  #mayCreate(file: FileId, view: View): boolean {
    const { self, store } = this.#parts;
    return viewVoters(view).includes(self) && store.failure === null && store.record(file) === null;
  }
}
