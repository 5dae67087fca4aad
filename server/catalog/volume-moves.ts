import type { Logger } from 'pino';
import { unreachable } from '../../base/assert.ts';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { CommandOf, CommandResults, QueryResults } from '../../wire/catalog-api.ts';
import type { VolumeMove } from '../../wire/volume-moves.ts';
import { WokenWork } from '../process/woken-work.ts';
import type { CatalogService } from '../routing/service-interfaces.ts';

const RETRY_MS = 1_000;
/** Numbers that one command records, and rows that one deletes: other commands are executed in between. */
const NUMBERED = 10_000;
const FORGOTTEN = 1_000;
const VISITED = 1_000;

export type MoveCommand = CommandOf<'volume-freeze' | 'volume-part' | 'volume-number' | 'volume-forget'>;

export interface VolumeMovesParts {
  readonly self: ServerId;
  readonly world: Pick<World, 'after'>;
  readonly log: Logger;
  /** The root catalog at this server. */
  readonly service: Pick<CatalogService, 'status' | 'query'>;
  /** The volume that moves to the catalog, as the root catalog lists it. */
  volumeOf(catalog: number): string | null;
  /** Changes of the volume wait; or they are executed by its own catalog from now on. */
  report(volume: string, phase: 'frozen' | 'moved'): void;
  /** Resolves if the catalog has a primary. */
  opened(catalog: number): Promise<unknown>;
  /** Resolves when no client caches anything of volumes that move. */
  recallMoving(): Promise<void>;
  /** Has the root catalog execute a command. */
  command<C extends MoveCommand>(command: C): Promise<CommandResults[C['kind']]>;
}

/**
 * Moves volumes to catalogs of their own, as the root catalog's primary, as far as the root catalog is concerned: no
 * client caches anything of the volume when it is frozen (rule `caches-end` of model/volumes), its numbers
 * are recorded before its rows are copied, and its rows are deleted once it has moved. The primary of the other catalog
 * copies the rows (`CatalogKeeper`). Each step can be repeated, by any later primary.
 */
export class VolumeMoves {
  readonly #parts: VolumeMovesParts;
  readonly #work: WokenWork;
  /** Moves whose phase was reported. */
  readonly #reported = new Set<string>();

  constructor(parts: VolumeMovesParts) {
    this.#parts = parts;
    const { world, log } = parts;
    this.#work = new WokenWork({
      ...{ world, retryMs: RETRY_MS },
      work: () => this.#advanceAll(),
      failed: (error) => log.debug({ err: error }, 'a volume does not move to its own catalog yet'),
    });
  }

  /** A move has begun or ended, or this server became the root catalog's primary. */
  wake(): void {
    this.#work.wake();
  }

  /** Resolves when nothing is to be done by what is known so far, or when that has failed. */
  settled(): Promise<void> {
    return this.#work.ended();
  }

  close(): void {
    this.#work.close();
  }

  async #advanceAll(): Promise<void> {
    const { service, self } = this.#parts;
    const failed = new Map<number, unknown>();
    while (!this.#work.isClosed && service.status().primary === self) {
      const { moves } = (await service.query({ kind: 'moves' }, true)) as QueryResults['moves'];
      const next = moves.find(
        ({ catalog, phase }) => !failed.has(catalog) && phase !== 'numbered' && phase !== 'forgotten',
      );
      if (next === undefined) break;
      await this.#advance(next).catch((error: unknown) => failed.set(next.catalog, error));
    }
    for (const error of failed.values()) throw error;
  }

  /** Has the root catalog take the next step of a move. */
  async #advance({ catalog: number, phase }: VolumeMove): Promise<void> {
    const { opened, recallMoving, command } = this.#parts;
    switch (phase) {
      case 'begun':
        // Else changes would wait for as long as its servers are away.
        await opened(number);
        await recallMoving();
        await command({ kind: 'volume-freeze', number });
        this.#report(number, 'frozen');
        return;
      case 'splitting':
        await command({ kind: 'volume-part', number, countMax: VISITED, resumes: true });
        return;
      case 'joining':
        await command({ kind: 'volume-part', number, countMax: VISITED });
        return;
      case 'frozen':
        await command({ kind: 'volume-number', number, countMax: NUMBERED });
        return;
      case 'moved':
        this.#report(number, 'moved');
        await command({ kind: 'volume-forget', number, countMax: FORGOTTEN });
        return;
      case 'numbered':
      case 'forgotten':
        return;
      default:
        unreachable(phase);
    }
  }

  #report(number: number, phase: 'frozen' | 'moved'): void {
    const { volumeOf, report } = this.#parts;
    const volume = volumeOf(number);
    const key = `${number} ${phase}`;
    if (volume === null || this.#reported.has(key)) return;
    this.#reported.add(key);
    report(volume, phase);
  }
}
