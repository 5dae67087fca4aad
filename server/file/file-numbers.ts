import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { type NumberPlacement, NumberReservations } from '../../replica/create-with-contents.ts';
import type { Command, CommandResults, ServerInfo } from '../../wire/catalog-api.ts';
import { classText, isRestricted, type PlacementClass } from '../../wire/placement-class.ts';
import {
  NUMBERS_PER_SET,
  type NumbersRequest,
  numberRuns,
  type ReservedNumbers,
} from '../../wire/reserved-numbers.ts';
import type { Clock } from '../process/clock.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import type { CallOptions } from '../routing/router.ts';
import type { ClassedVolume, FileClass, StorageSettings } from './storage-settings.ts';

/** For how long a number can create a file with contents, in milliseconds; the catalog keeps it longer. */
const NUMBERS_MS = 10 * 60_000;
/** Of files if the reservation names no volume, as by clients of earlier releases: they know only the root catalog. */
const UNNAMED: ClassedVolume = { name: '', root: inodesOf(ROOT_CATALOG).first, replicas: 3 };
const CHOICES_MAX = 8;

export interface FileNumbersParts {
  readonly self: ServerId;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly settings: Pick<StorageSettings, 'ofVolume' | 'ofClass' | 'servers'>;
  catalogOf(inode: number): CatalogNumber;
  choose(replicas: number, servers: readonly ServerInfo[], required: PlacementClass): readonly ServerId[];
  command<C extends Command>(
    command: C,
    name?: NumberedRequest,
    options?: CallOptions,
  ): Promise<CommandResults[C['kind']]>;
}

/** Numbers that catalogs have reserved for this process to create files with contents, and their servers. */
export class FileNumbers {
  readonly #parts: FileNumbersParts;
  readonly #numbers = new NumberReservations();

  constructor(parts: FileNumbersParts) {
    this.#parts = parts;
  }

  /**
   * Reserves numbers for the client of `owner`, in the catalog of the named volume. Their members are fixed here: the
   * first view of a file has the same members whichever server creates it, and however.
   * @param assertAllowed throws if the client must not have numbers of that catalog; then none are reserved
   */
  async reserve(
    { owner, count, volume: name, placement }: NumbersRequest,
    assertAllowed: (catalog: CatalogNumber) => void = () => undefined,
  ): Promise<ReservedNumbers> {
    const { self, clock, command, settings, catalogOf } = this.#parts;
    const untilMs = clock.nowMs() + NUMBERS_MS;
    const { volume, servers: known } =
      name === undefined
        ? { volume: UNNAMED, servers: await settings.servers() }
        : await settings.ofVolume(name);
    const catalog = catalogOf(volume.root);
    assertAllowed(catalog);
    const files = placement === undefined ? volume : await settings.ofClass(volume, placement);
    const { replicas } = files;
    const choose = (servers: readonly ServerInfo[]): (readonly ServerId[])[] => {
      const sets = Array.from({ length: Math.ceil(count / NUMBERS_PER_SET) }, () =>
        this.#chooseWithSelf(files, servers),
      );
      if (sets.every(({ length }) => length > 0)) return sets;
      throw new ServiceError(
        'no-majority',
        isRestricted(files)
          ? `No server ${classText(files)} can store new files`
          : 'No server can store new files: all are full, draining or unreachable',
      );
    };
    const reserve = async (sets: readonly (readonly ServerId[])[]) => {
      const members = sets.map((set) => [...set]);
      const ofVolume = name === undefined ? {} : { volume: name };
      const reservation = { kind: 'reserve-inodes', owner, count, members, ...ofVolume } as const;
      const { first } = await command(reservation, undefined, { catalog });
      return { first, sets, members };
    };
    const { first, sets, members } = await reserve(choose(known)).catch(async (error: unknown) => {
      // A server has left since the list of servers was fetched.
      if (!isRefusedByCatalog(error)) throw error;
      return reserve(choose(await settings.servers()));
    });
    for (const run of numberRuns(first, count, sets))
      this.#numbers.add({
        ...run,
        owner,
        untilMs,
        replicas,
        placement: placement ?? 0,
        members: run.members as readonly ServerId[],
      });
    const ofClass = placement === undefined ? {} : { placement };
    const valid = { creatingServer: self, named: true, validMs: NUMBERS_MS } as const;
    return { first, count, sets: members, ...ofClass, ...valid };
  }

  /** @returns the members of the number's file, once; null if this owner has no such number any more */
  take(owner: number, number: number): NumberPlacement | null {
    return this.#numbers.take(owner, number, this.#parts.clock.nowMs());
  }

  /** So that the contents are here, if this server may hold them. */
  #chooseWithSelf(files: FileClass, servers: readonly ServerInfo[]): readonly ServerId[] {
    const { self, choose } = this.#parts;
    let members = choose(files.replicas, servers, files);
    for (let choices = 1; choices < CHOICES_MAX && !members.includes(self); choices++)
      members = choose(files.replicas, servers, files);
    return members;
  }
}

/** Whether the catalog has refused a command that members of all releases know. */
export function isRefusedByCatalog(error: unknown): boolean {
  return (
    error instanceof ServiceError &&
    error.code === 'precondition-failed' &&
    error.details.outdated === undefined
  );
}
