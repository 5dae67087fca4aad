import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { NumberPlacement } from '../../replica/create-with-contents.ts';
import type { CommandOf, ServerInfo } from '../../wire/catalog-api.ts';
import { NEW_FILE_BYTES_MAX } from '../../wire/new-files.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import { NUMBERS_PER_SET } from '../../wire/reserved-numbers.ts';
import type { Clock } from '../process/clock.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import type { Counter } from '../telemetry/metrics.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import { creationOperations } from './creation-operations.ts';
import { CREATED_WITH_CONTENTS } from './creation-outcome.ts';
import { type FileNumbers, isRefusedByCatalog } from './file-numbers.ts';
import type { FirstContents } from './first-contents.ts';
import type { ReplicaHost } from './replica-host.ts';
import type { StorageSettings, VolumeStorage } from './storage-settings.ts';

/** Larger files are created in two steps: this one is in memory, and in one message to each server. */
export const WHOLE_BYTES_MAX = NEW_FILE_BYTES_MAX;

/** Contents that a majority has durably; the catalog does not have the file yet. */
export type StoredContents = Pick<
  CommandOf<'replace-with-contents'>,
  'inode' | 'owner' | 'replicas' | 'objectBytes' | 'sizeBytes' | 'modifiedNs' | 'contents'
>;

export interface WholeFilesParts {
  readonly world: World;
  readonly clock: Pick<Clock, 'wallNs'>;
  readonly contents: Pick<FirstContents, 'store'>;
  readonly numbers: Pick<FileNumbers, 'reserve' | 'take'>;
  readonly settings: Pick<StorageSettings, 'ofVolume' | 'ofClass'>;
  readonly host: Pick<ReplicaHost, 'directoryEntryCreated'>;
  readonly traffic: Pick<Traffic, 'countWrite'>;
  readonly outcomes: Counter;
  /** Whether all servers are known to know the command that creates the directory entries. */
  isUnderstood(): boolean;
  isOutdated(members: readonly ServerId[], servers: readonly ServerInfo[], required: PlacementClass): boolean;
  catalogOf(inode: number): CatalogNumber;
  flushCatalogOf(inode: number): Promise<void>;
}

interface Numbers {
  next: number;
  readonly end: number;
}

/**
 * Stores files that clients of REST send as a whole, as `CreateWithContents` does for mounts. They replace the file at
 * the path, and survive a loss of power before the catalog has them.
 */
export class WholeFiles {
  readonly #parts: WholeFilesParts;
  readonly #owner: number;
  /** By the volume's root and the class: another volume of the same name may be in another catalog. */
  readonly #numbers = new Map<string, Promise<Numbers>>();

  constructor(parts: WholeFilesParts) {
    this.#parts = parts;
    this.#owner = drawIncarnation(parts.world);
  }

  /** Whether a new file of `bytes` may exceed a quota of the volume, as last known here; the catalog decides. */
  async mayExceedQuota(volumeName: string, bytes: number): Promise<boolean> {
    const { volume } = await this.#parts.settings.ofVolume(volumeName);
    const { quotaBytes, namedBytes, quotaInodes, namedInodes } = volume;
    const isFull = quotaInodes > 0 && namedInodes >= quotaInodes;
    return isFull || (quotaBytes > 0 && namedBytes + bytes > quotaBytes);
  }

  /**
   * Stores contents.
   * @param placement the directory whose placement class the file will have; 0: the volume's
   * @returns their part of the command for the entry; null: create the file in two steps
   */
  async store(volumeName: string, bytes: Uint8Array, placement = 0): Promise<StoredContents | null> {
    const { contents, settings, clock } = this.#parts;
    if (bytes.length > WHOLE_BYTES_MAX || !this.#parts.isUnderstood()) return null;
    const storage = await settings.ofVolume(volumeName);
    const { policy, objectBytes } = storage.volume;
    // Policy "all" needs more than a majority, and "read-only" a seal.
    const number =
      policy === 'quorum' ? await this.#takeNumber(storage, placement).catch(nullIfUnreserved) : null;
    if (number === null) return null;
    const { inode, members } = number;
    const modifiedNs = clock.wallNs();
    const replica = { file: inode as FileId, operations: creationOperations(bytes, modifiedNs) };
    const stored = await contents.store({ members, objectBytes, replicas: [replica], synced: true });
    if (stored[0] !== null) {
      this.#parts.outcomes.add(1, { outcome: 'not-created' });
      return null;
    }
    return {
      ...{ inode, owner: this.#owner, replicas: [...members], objectBytes, sizeBytes: bytes.length },
      ...{ modifiedNs: modifiedNs.toString(), contents: CREATED_WITH_CONTENTS },
    };
  }

  entryCreated(inode: number): void {
    this.#parts.host.directoryEntryCreated(inode as FileId);
    this.#parts.outcomes.add(1, { outcome: 'created' });
    this.#parts.traffic.countWrite();
  }

  async #takeNumber(
    { volume, servers }: VolumeStorage,
    placement: number,
  ): Promise<(NumberPlacement & { readonly inode: number }) | null> {
    const { numbers, settings, isOutdated } = this.#parts;
    const files = await settings.ofClass(volume, placement);
    const key = `${this.#parts.catalogOf(volume.root)} ${volume.root} ${placement}`;
    for (let reservations = 0; reservations < 2; ) {
      let reserved = this.#numbers.get(key);
      if (reserved === undefined) {
        reserved = this.#reserve(volume.name, placement);
        this.#numbers.set(key, reserved);
        reservations++;
      }
      const range = await reserved.catch((error: unknown) => {
        this.#forget(key, reserved);
        throw error;
      });
      const inode = range.next < range.end ? range.next++ : null;
      const place = inode === null ? null : numbers.take(this.#owner, inode);
      const isGood =
        place !== null && place.replicas === files.replicas && !isOutdated(place.members, servers, files);
      if (inode !== null && isGood) return { ...place, inode };
      this.#forget(key, reserved);
    }
    return null;
  }

  #forget(key: string, numbers: Promise<Numbers>): void {
    if (this.#numbers.get(key) === numbers) this.#numbers.delete(key);
  }

  async #reserve(volume: string, placement: number): Promise<Numbers> {
    const ofClass = placement === 0 ? {} : { placement };
    const request = { owner: this.#owner, count: NUMBERS_PER_SET, volume, ...ofClass };
    const { first, count } = await this.#parts.numbers.reserve(request);
    // If the command is executed again after a loss of power, it needs the reservation.
    await this.#parts.flushCatalogOf(first);
    return { next: first, end: first + count };
  }
}

/** @returns null if the catalog reserves no numbers: a member runs an earlier release, or servers have just left */
function nullIfUnreserved(error: unknown): null {
  return isRefusedByCatalog(error) ? null : nullIfOutdated(error);
}

/**
 * @returns null for the catalog's refusal of a command because a member runs an earlier release, or because the volume
 * has moved to another catalog than the one that reserved the number; else throws
 */
export function nullIfOutdated(error: unknown): null {
  if (error instanceof ServiceError && (error.details.outdated ?? error.details.elsewhere) !== undefined)
    return null;
  throw error;
}
