import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { type NumberPlacement, NumberReservations } from '../../replica/create-with-contents.ts';
import type { Command, CommandResults, ServerInfo } from '../../wire/catalog-api.ts';
import {
  NUMBERS_PER_SET,
  type NumbersRequest,
  numberRuns,
  type ReservedNumbers,
} from '../../wire/reserved-numbers.ts';
import type { Clock } from '../process/clock.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import type { CallOptions } from '../routing/router.ts';
import type { StorageSettings } from './storage-settings.ts';

/** For how long a number can create a file with contents, in milliseconds; the catalog keeps it longer. */
const NUMBERS_MS = 10 * 60_000;
/** Replicas of files if the reservation names no volume, as by clients of earlier releases. */
const REPLICAS_UNNAMED = 3;
const CHOICES_MAX = 8;

export interface FileNumbersParts {
  readonly self: ServerId;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly settings: Pick<StorageSettings, 'ofVolume' | 'servers'>;
  choose(replicas: number, servers: readonly ServerInfo[]): readonly ServerId[];
  command<C extends Command>(
    command: C,
    name?: NumberedRequest,
    options?: CallOptions,
  ): Promise<CommandResults[C['kind']]>;
}

/** Numbers that the catalog has reserved for this process to create files with contents, and their servers. */
export class FileNumbers {
  readonly #parts: FileNumbersParts;
  readonly #numbers = new NumberReservations();

  constructor(parts: FileNumbersParts) {
    this.#parts = parts;
  }

  /**
   * Reserves numbers for the client of `owner`. Their members are fixed here: the first view of a file has the same
   * members whichever server creates it, and however.
   */
  async reserve({ owner, count, volume: name }: NumbersRequest): Promise<ReservedNumbers> {
    const { self, clock, command, settings } = this.#parts;
    const untilMs = clock.nowMs() + NUMBERS_MS;
    const { replicas, servers: known } =
      name === undefined
        ? { replicas: REPLICAS_UNNAMED, servers: await settings.servers() }
        : await settings
            .ofVolume(name)
            .then(({ volume, servers }) => ({ servers, replicas: volume.replicas }));
    const choose = (servers: readonly ServerInfo[]): (readonly ServerId[])[] => {
      const sets = Array.from({ length: Math.ceil(count / NUMBERS_PER_SET) }, () =>
        this.#chooseWithSelf(replicas, servers),
      );
      if (sets.every(({ length }) => length > 0)) return sets;
      throw new ServiceError(
        'no-majority',
        'No server can store new files: all are full, draining or unreachable',
      );
    };
    const reserve = async (sets: readonly (readonly ServerId[])[]) => {
      const members = sets.map((set) => [...set]);
      const { first } = await command({ kind: 'reserve-inodes', owner, count, members });
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
        members: run.members as readonly ServerId[],
      });
    return { first, count, sets: members, creatingServer: self, named: true, validMs: NUMBERS_MS };
  }

  /** @returns the members of the number's file, once; null if this owner has no such number any more */
  take(owner: number, number: number): NumberPlacement | null {
    return this.#numbers.take(owner, number, this.#parts.clock.nowMs());
  }

  #chooseWithSelf(replicas: number, servers: readonly ServerInfo[]): readonly ServerId[] {
    const { self, choose } = this.#parts;
    let members = choose(replicas, servers);
    for (let choices = 1; choices < CHOICES_MAX && !members.includes(self); choices++)
      members = choose(replicas, servers);
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
