import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { isUnusedCopy } from '../../replica/create-with-contents.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import { withLateCheck } from '../process/bounded.ts';
import { PrimaryWaiter, type PrimaryWaiterParts } from '../routing/primary-waiter.ts';
import type { FileStore } from '../storage/store.ts';
import type { Authorities, Orderer } from './authority.ts';
import { Bursts } from './bursts.ts';
import type { CatalogAccess } from './catalog-access.ts';
import type { ReleasedFiles } from './released-files.ts';
import type { ReplicaHost } from './replica-host.ts';

/** Changes of a file without a primary, in one burst, before the file gets one. */
const CHANGES_MAX = 16;
/** After this time a request that waits for a primary asks the catalog whether the file has moved, in milliseconds. */
const OUTDATED_AFTER_MS = 500;

export interface FileReplicasParts extends PrimaryWaiterParts {
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly authorities: Authorities;
  readonly releasedFiles: ReleasedFiles;
  readonly catalog: Pick<CatalogAccess, 'attributes' | 'recentAttributes' | 'epoch'>;
}

interface SeenMark {
  readonly allowedBytes: number;
  readonly changedNs: string;
  readonly appendOnly: boolean;
  readonly markedInEpoch: number;
}

/** Opens the replicas of this server, and gets the authority that a request needs, or names the server that has it. */
export class FileReplicas {
  readonly #parts: FileReplicasParts;
  readonly #waiter: PrimaryWaiter;
  readonly #changes = new Bursts();
  readonly #seenLive = new WeakMap<ReplicaDriver, SeenMark>();

  constructor(parts: FileReplicasParts) {
    this.#parts = parts;
    this.#waiter = new PrimaryWaiter(parts);
  }

  /** Returns the replica here once it is primary; fails if another server is. Without one, this server becomes it. */
  primary(file: FileId): Promise<ReplicaDriver> {
    return this.#waitForAuthority(file, (driver) => driver.isPrimary);
  }

  /** As `primary`, but a creating server or resumed primary suffices. */
  async orderer(file: FileId): Promise<ReplicaDriver> {
    const { authorities } = this.#parts;
    const orderer = await this.ordererIfAny(file);
    if (orderer === null) return this.#waitForAuthority(file, (one) => authorities.orderer(one) !== null);
    if (orderer.kind !== 'active-primary') this.#becomePrimaryIfChangedOften(orderer.driver);
    return orderer.driver;
  }

  /**
   * If the file has no primary, its last primary, which ended its epoch in good order, resumes it
   * (docs/design/mount.md): this server does, or the caller is sent there, once. Reads are not sent there: they are
   * served where they arrive. A creation in progress here is awaited, because it knows the last primary.
   * @returns null if a server has to become primary first
   * @throws ServiceError `not-primary`
   */
  async ordererIfAny(file: FileId): Promise<Orderer | null> {
    const { host, clock, authorities } = this.#parts;
    if (host.isCopying(file)) return null;
    await host.creationEnded(file);
    const driver = host.loaded(file) ?? (host.isResumable(file) ? host.load(file) : null);
    const orderer = driver === null ? null : authorities.orderer(driver);
    if (orderer !== null) {
      orderer.driver.usedAtMs = clock.nowMs();
      return orderer;
    }
    const last = authorities.sendToLastPrimary(file);
    if (last === null) return null;
    throw new ServiceError(
      'not-primary',
      `Server ${last} is the last primary of file ${file}, and may resume: send the request to it`,
      {
        primary: last,
      },
    );
  }

  /** Returns this server's replica, loaded. @throws ServiceError `not-primary`, with the members, if it is no member */
  async member(file: FileId): Promise<ReplicaDriver> {
    const driver = this.#parts.host.loaded(file) ?? (await this.#open(file));
    driver.usedAtMs = this.#parts.clock.nowMs();
    const { view, outside } = driver.status();
    if (outside !== null) throw this.#elsewhereError(file, outside.members);
    if (!viewVoters(view).includes(this.#parts.self)) throw this.#elsewhereError(file, view.members);
    return driver;
  }

  /**
   * The primary `from` is about to release the file: this server becomes primary then, and requests here wait for it.
   * @throws ServiceError if this server cannot become primary of the file
   */
  async succeed(file: FileId, from: ServerId): Promise<void> {
    const { lease, releasedFiles } = this.#parts;
    lease.assertUsable();
    const driver = await this.member(file);
    this.assertMayBecomePrimary(driver);
    releasedFiles.assertNotReleased(file);
    this.#waiter.expectRelease(driver, from);
    await this.#waiter.primary(driver, `file ${file}`, true);
  }

  /** A server that is being drained becomes primary only if no other can. @throws ServiceError `not-primary` */
  assertMayBecomePrimary(driver: ReplicaDriver): void {
    const primary = this.#parts.authorities.successor(driver.view);
    if (primary === null) return;
    throw new ServiceError(
      'not-primary',
      `This server is draining and does not become primary of file ${driver.file}: send the request to ${primary}`,
      {
        primary,
      },
    );
  }

  /** Waits no longer than for a majority. @param begin not called if the store failed: its outcome would be lost */
  withinTimeout<Value>(file: FileId, begin: () => Promise<Value>): Promise<Value> {
    const view = this.#parts.store.record(file)?.view ?? { number: 0, members: [] };
    return this.#waiter.bounded(begin(), view, `file ${file}`);
  }

  /** Keeps the catalog's answer about a live file. @param markedInEpoch the catalog's epoch, as known before it */
  noteMark(
    driver: ReplicaDriver,
    { allowedBytes = Infinity, changedNs, flags = [] }: Attributes,
    markedInEpoch: number = this.#parts.catalog.epoch(driver.file),
  ): void {
    this.#seenLive.set(driver, {
      ...{ allowedBytes, changedNs, markedInEpoch },
      appendOnly: flags.includes('append-only'),
    });
  }

  seenMark(driver: ReplicaDriver): SeenMark | undefined {
    return this.#seenLive.get(driver);
  }

  /** Competes for the lease of a file that is changed often, so that its reads need no quorum. */
  #becomePrimaryIfChangedOften({ file, view }: ReplicaDriver): void {
    const { lease, clock } = this.#parts;
    if (this.#changes.countUse(file, clock.nowMs()) > CHANGES_MAX && lease.isUsable()) lease.open(file, view);
  }

  async #waitForAuthority(
    file: FileId,
    isEnough: (driver: ReplicaDriver) => boolean,
  ): Promise<ReplicaDriver> {
    const { host, lease } = this.#parts;
    const ready = host.loaded(file);
    if (ready !== null && isEnough(ready)) {
      ready.usedAtMs = this.#parts.clock.nowMs();
      return ready;
    }
    lease.assertUsable();
    const driver = await this.member(file);
    this.assertMayBecomePrimary(driver);
    const { view } = driver;
    const waiting = this.#waitForOrders(driver, isEnough);
    await withLateCheck(this.#parts.world, waiting, OUTDATED_AFTER_MS, () => this.#movedError(file, view));
    return driver;
  }

  /** Waits until this server orders changes of the file and `isEnough` holds, as that it answers reads. */
  async #waitForOrders(driver: ReplicaDriver, isEnough: (driver: ReplicaDriver) => boolean): Promise<void> {
    const subject = `file ${driver.file}`;
    await this.#waiter.primary(driver, subject, true, () => driver.orders);
    if (isEnough(driver)) return;
    // If the file was created here, its epoch begins at the other servers with the first write, or with this event.
    driver.step({ kind: 'read-wanted' });
    await this.#waiter.primary(driver, subject, true, () => isEnough(driver));
  }

  /**
   * For a server that was disconnected for long: all members of its view may have been replaced since.
   * @returns the error that names the new ones; null if the catalog has no newer view, or does not answer
   */
  async #movedError(file: FileId, { number }: View): Promise<ServiceError | null> {
    try {
      const { view, replicas } = await this.#parts.catalog.attributes(file);
      return view > number ? this.#elsewhereError(file, replicas as ServerId[]) : null;
    } catch (error) {
      if (error instanceof ServiceError) return error.code === 'not-found' ? error : null;
      throw error;
    }
  }

  /** The error names a reachable one of `members`, to be asked next. */
  #elsewhereError(file: FileId, members: readonly ServerId[]): ServiceError {
    const { self, isConnected } = this.#parts;
    const next = members.find((member) => member !== self && isConnected(member));
    const details = next === undefined ? {} : { primary: next };
    return new ServiceError(
      'not-primary',
      `This server has no replica of file ${file}: send the request to ${members.join(', ')}`,
      details,
    );
  }

  /** Loads the replica; creates an empty one if the catalog places one here, and else throws `not-primary`. */
  async #open(file: FileId): Promise<ReplicaDriver> {
    const { host, store, catalog, self } = this.#parts;
    // The other members have copies already, or the file has no servers yet.
    if (host.isCopying(file))
      throw this.#elsewhereError(file, (await catalog.attributes(file)).replicas as ServerId[]);
    await host.creationEnded(file);
    const record = store.record(file);
    // While a file has the contents of a snapshot, it has no servers, although copies may be there already.
    if (record !== null && !isUnusedCopy(record)) return host.load(file);
    const epoch = catalog.epoch(file);
    const here = catalog.recentAttributes(file);
    const attributes = here?.replicas.includes(self) === true ? here : await catalog.attributes(file);
    if (attributes.kind !== 'file')
      throw new ServiceError('bad-request', `Inode ${file} is a ${attributes.kind}`);
    const view = viewOf(attributes);
    if (!view.members.includes(self)) throw this.#elsewhereError(file, view.members);
    const driver = host.create(file, view, attributes.objectBytes);
    if (attributes.live) this.noteMark(driver, attributes, epoch);
    return driver;
  }
}

export function viewOf({ view, replicas, policy }: Pick<Attributes, 'view' | 'replicas' | 'policy'>): View {
  return {
    number: view,
    members: replicas as readonly ServerId[],
    ...(policy === undefined || policy === 'quorum' ? {} : { policy }),
  };
}
