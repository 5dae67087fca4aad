import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { type SessionAnswer, SessionTable } from '../../replica/sessions.ts';
import { viewHasMajority, viewVoters } from '../../replica/view.ts';
import type { Clock } from '../clock.ts';
import type { ReplicaDriver } from '../replica-driver.ts';
import type { ChangeRequest } from '../services.ts';
import type { FileStore } from '../storage/store.ts';
import type { FileReplicas } from './file-replicas.ts';
import type { GivenAway } from './given-away.ts';
import { Room } from './room.ts';

const ALL_RETRY_MS = 1_000;

export interface ChangeAdmissionParts {
  readonly self: ServerId;
  readonly clock: Clock;
  readonly store: FileStore;
  readonly replicas: FileReplicas;
  readonly givenAway: GivenAway;
  isConnected(server: ServerId): boolean;
  /** Whether another server has reported of late that its disk is full. */
  isDiskFull?(server: ServerId): boolean;
}

/** Refuses a change before it has a position in the order: then it certainly did not happen, and nothing waits for it. */
export class ChangeAdmission {
  readonly #parts: ChangeAdmissionParts;
  readonly #room: Room;

  constructor(parts: ChangeAdmissionParts) {
    this.#parts = parts;
    this.#room = new Room(parts.store, () => parts.clock.nowMs());
  }

  /**
   * A primary without free space leaves the file to others, which may have some: a majority of them can take every write.
   * A change that was made before needs no space.
   *
   * @throws ServiceError `no-space`
   */
  async assertSpace(driver: ReplicaDriver, request: ChangeRequest, bytes: number): Promise<void> {
    try {
      await this.#room.assertFor(bytes);
    } catch (error) {
      if (await this.isKnown(driver, request)) return;
      const { isConnected, self, givenAway } = this.#parts;
      const isThere = (member: ServerId): boolean => member !== self && isConnected(member);
      if (viewHasMajority(driver.view, isThere)) {
        await givenAway.give(driver, error);
        throw error;
      }
      if (!(error instanceof ServiceError)) throw error;
      throw new ServiceError(error.code, error.message, { primary: self }, { cause: error });
    }
    await this.#assertSpaceAtBackups(driver, request);
  }

  /**
   * What backups cannot store no majority will have: that is reported before the change has a position in the order. A server
   * that is away stores nothing either; and an operation that has a position then blocks all that are connected, for the next
   * primary has to have it stored first.
   */
  async #assertSpaceAtBackups(driver: ReplicaDriver, request: ChangeRequest): Promise<void> {
    const { isDiskFull = () => false, isConnected, self } = this.#parts;
    const { view } = driver;
    const others = viewVoters(view).filter((member) => member !== self);
    const full = others.filter((member) => isDiskFull(member));
    if (full.length === 0) return;
    const away = others.filter((member) => !full.includes(member) && !isConnected(member));
    const hasSpace = (member: ServerId): boolean => !full.includes(member) && !away.includes(member);
    const isEnough = view.policy !== 'all' && viewHasMajority(view, hasSpace);
    if (isEnough || (await this.isKnown(driver, request))) return;
    const unreachable = away.length === 0 ? '' : `, and ${away.join(', ')} is not reachable`;
    throw new ServiceError(
      'no-space',
      `The disks of ${full.join(', ')} are full${unreachable}: delete files, or give them more room`,
      { primary: self },
    );
  }

  /**
   * Where every member has to have a write, one that cannot be there is refused, and reads need not wait for it.
   *
   * @throws ServiceError `no-majority`
   */
  assertAllReachable(driver: ReplicaDriver): void {
    const { view } = driver;
    if (view.policy !== 'all' || view.joint !== undefined) return;
    const { self, isConnected } = this.#parts;
    const unreachable = view.members.filter((member) => member !== self && !isConnected(member));
    if (unreachable.length === 0) return;
    throw new ServiceError(
      'no-majority',
      `Every replica of file ${driver.file} has to have a write, and there is no way to ${unreachable.join(', ')}`,
      { unreachable, retryAfterMs: ALL_RETRY_MS },
    );
  }

  /** Whether the request has a position in the order, or that is not known any more. */
  async isKnown(driver: ReplicaDriver, request: ChangeRequest): Promise<boolean> {
    return (await this.answerTo(driver, request)).kind !== 'fresh';
  }

  /** What became of a request, with all that has a position in the order now. */
  async answerTo(driver: ReplicaDriver, request: ChangeRequest): Promise<SessionAnswer> {
    const { file, epoch, orderedSeq, subject } = driver;
    if (subject.record().seq < orderedSeq) {
      await this.#parts.replicas.bounded(file, () =>
        driver.leads ? driver.committed(epoch, orderedSeq) : driver.committedAll(),
      );
    }
    return SessionTable.decode(subject.record().sessions).find(request);
  }
}
