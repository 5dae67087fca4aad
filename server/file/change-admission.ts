import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { type SessionLookup, SessionTable } from '../../replica/sessions.ts';
import { viewHasMajority, viewVoters } from '../../replica/view.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { ChangeRequest } from '../routing/service-interfaces.ts';
import type { FileStore } from '../storage/store.ts';
import type { FileReplicas } from './file-replicas.ts';
import { FreeSpace } from './free-space.ts';
import type { ReleasedFiles } from './released-files.ts';

const ALL_POLICY_RETRY_MS = 1_000;

export interface ChangeAdmissionParts {
  readonly self: ServerId;
  readonly clock: Clock;
  readonly store: FileStore;
  readonly replicas: FileReplicas;
  readonly releasedFiles: ReleasedFiles;
  isConnected(server: ServerId): boolean;
  isDiskFull?(server: ServerId): boolean;
}

/** Refuses a change before it has a position in the order: then it certainly has no effect. */
export class ChangeAdmission {
  readonly #parts: ChangeAdmissionParts;
  readonly #space: FreeSpace;

  constructor(parts: ChangeAdmissionParts) {
    this.#parts = parts;
    this.#space = new FreeSpace(parts.store, () => parts.clock.nowMs());
  }

  /**
   * Refuses a change if the disk here or at too many backups has no space. If it is the one here, and a majority of
   * the others is reachable, releases the file to them first. A repeated change passes. @throws ServiceError `no-space`
   */
  async assertSpace(driver: ReplicaDriver, request: ChangeRequest, bytes: number): Promise<void> {
    try {
      await this.#space.assertFree(bytes);
    } catch (error) {
      if (await this.isKnown(driver, request)) return;
      const { isConnected, self, releasedFiles } = this.#parts;
      const isReachable = (member: ServerId): boolean => member !== self && isConnected(member);
      if (viewHasMajority(driver.view, isReachable)) {
        await releasedFiles.release(driver, error);
        throw error;
      }
      if (!(error instanceof ServiceError)) throw error;
      throw new ServiceError(error.code, error.message, { primary: self }, { cause: error });
    }
    await this.#assertSpaceAtBackups(driver, request);
  }

  /**
   * Refuses a change if too few backups have free space for a majority; an unreachable server stores nothing either. An
   * operation with a position would block all connected clients, because the next primary has to have it stored first.
   */
  async #assertSpaceAtBackups(driver: ReplicaDriver, request: ChangeRequest): Promise<void> {
    const { isDiskFull = () => false, isConnected, self } = this.#parts;
    const { view } = driver;
    const others = viewVoters(view).filter((member) => member !== self);
    const full = others.filter((member) => isDiskFull(member));
    if (full.length === 0) return;
    const disconnected = others.filter((member) => !full.includes(member) && !isConnected(member));
    const hasSpace = (member: ServerId): boolean => !full.includes(member) && !disconnected.includes(member);
    const isEnough = view.policy !== 'all' && viewHasMajority(view, hasSpace);
    if (isEnough || (await this.isKnown(driver, request))) return;
    const unreachable = disconnected.length === 0 ? '' : `, and ${disconnected.join(', ')} is not reachable`;
    throw new ServiceError(
      'no-space',
      `No space: the disks of ${full.join(', ')} are full${unreachable}; delete files or add space`,
      { primary: self },
    );
  }

  /** Under policy `all`, refuses a write while a member is unreachable, because reads would wait for that member. */
  assertAllReachable(driver: ReplicaDriver): void {
    const { view } = driver;
    if (view.policy !== 'all' || view.joint !== undefined) return;
    const { self, isConnected } = this.#parts;
    const unreachable = view.members.filter((member) => member !== self && !isConnected(member));
    if (unreachable.length === 0) return;
    throw new ServiceError(
      'no-majority',
      `Cannot write file ${driver.file}: its policy "all" needs every replica, and ` +
        `${unreachable.join(', ')} cannot be reached; start them, or retry later`,
      { unreachable, retryAfterMs: ALL_POLICY_RETRY_MS },
    );
  }

  /** Whether the request was ordered before; also true if its session has expired, so that this is unknown. */
  async isKnown(driver: ReplicaDriver, request: ChangeRequest): Promise<boolean> {
    return (await this.outcomeOf(driver, request)).kind !== 'fresh';
  }

  /** @returns what the session table says of a request, after all operations ordered so far have been committed */
  async outcomeOf(driver: ReplicaDriver, request: ChangeRequest): Promise<SessionLookup> {
    const { file, epoch, orderedSeq, subject } = driver;
    if (subject.record().seq < orderedSeq) {
      await this.#parts.replicas.withinTimeout(file, () =>
        driver.isPrimary ? driver.untilReadable(epoch, orderedSeq) : driver.untilAllCommitted(),
      );
    }
    return SessionTable.decode(subject.record().sessions).find(request);
  }
}
