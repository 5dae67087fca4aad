import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type { CommandOf, CommandResults, QueryResults } from '../../wire/catalog-api.ts';
import type { CatalogReport, ListedServer, OwnCatalogState } from '../../wire/volume-catalogs.ts';
import { EXPORT_START } from '../../wire/volume-moves.ts';
import { WokenWork } from '../process/woken-work.ts';
import type { CatalogService } from '../routing/service-interfaces.ts';
import type { CatalogRow } from './catalog-rows.ts';
import type { Attendance } from './volume-catalogs.ts';
import { importVolume } from './volume-import.ts';

const RETRY_MS = 1_000;
/** While files move away from a draining server, the catalog is asked this often whether any is left. */
const DRAIN_CHECK_MS = 5_000;

export type KeeperCommand = CommandOf<
  'catalog-begin' | 'catalog-close' | 'follow-servers' | 'catalog-import'
>;

export interface CatalogKeeperParts {
  readonly self: ServerId;
  readonly number: CatalogNumber;
  readonly world: Pick<World, 'after' | 'nextTick'>;
  readonly log: Logger;
  /** As the root catalog lists it; null if it is unknown here. */
  row(): CatalogRow | null;
  /** All servers in the list. */
  servers(): readonly ListedServer[];
  /** The catalog at this server. */
  readonly service: Pick<CatalogService, 'status' | 'query' | 'flush'>;
  /** Of the replica here; null if there is none. */
  view(): View | null;
  /** Has the catalog execute a command. */
  command<C extends KeeperCommand>(command: C): Promise<CommandResults[C['kind']]>;
  /** Rows of the volume that moves to this catalog, from the root catalog. */
  exported(after: string): Promise<QueryResults['volume-export']>;
  /** Has the root catalog end the move of the volume. */
  abortMove(name: string): Promise<unknown>;
  /** Resolves when the report survives a loss of power of all members of the root catalog. */
  report(report: CatalogReport): Promise<unknown>;
}

/**
 * Keeps the life of a volume's catalog, at its primary: has it follow the root catalog's list, and reports to the root
 * catalog what is flushed, so that no loss of power undoes it (rule `reports-flushed` of model/volumes). Commands and
 * reports may be repeated, and come late: versions of the list say what they are about.
 */
export class CatalogKeeper implements Attendance {
  readonly #parts: CatalogKeeperParts;
  readonly #work: WokenWork;
  /** Reports that the root catalog has: its list shows some of them a little later, and confirmations never. */
  readonly #reported = new Set<string>();
  /** As of the last change of the list. */
  #row: CatalogRow | null;
  #servers: readonly ListedServer[];
  #drainCheck: Timer | null = null;

  constructor(parts: CatalogKeeperParts) {
    this.#parts = parts;
    const { world, log, number } = parts;
    this.#row = parts.row();
    this.#servers = parts.servers();
    this.#work = new WokenWork({
      ...{ world, retryMs: RETRY_MS },
      work: () => this.#keep(),
      failed: (error) => log.debug({ err: error, catalog: number }, 'a catalog does not follow the list yet'),
    });
  }

  /** The list has changed. */
  listChanged(): void {
    const { row, servers } = this.#parts;
    if (row() === this.#row && servers() === this.#servers) return;
    this.#row = row();
    this.#servers = servers();
    this.wake();
  }

  /** The catalog's view has changed, or this server became its primary. */
  wake(): void {
    this.#work.wake();
  }

  /** Resolves when nothing is to be done by what is known so far, or when that has failed. */
  settled(): Promise<void> {
    return this.#work.ended();
  }

  close(): void {
    this.#drainCheck?.cancel();
    this.#work.close();
  }

  get #isPrimary(): boolean {
    const { service, self } = this.#parts;
    return service.status().primary === self;
  }

  async #keep(): Promise<void> {
    const row = this.#parts.row();
    if (row === null || row.state === 'removed' || !this.#isPrimary) return;
    if (row.moving !== undefined && !(await this.#importVolume(row))) return;
    const command = this.#commandFor(row, await this.#state());
    if (command !== null) await this.#parts.command(command);
    await this.#reportFlushed(row);
  }

  /** Copies the rows of the volume that moves here. @returns whether the catalog has all of them, and no others */
  async #importVolume({ number, name, moving }: CatalogRow): Promise<boolean> {
    const { world, service, command, exported, log, abortMove } = this.#parts;
    if (moving !== 'numbered') return false;
    const { begun, imported = EXPORT_START } = await this.#state();
    if (begun) return true;
    const parts = {
      ...{ number, world, exported, imported: command, isPrimary: () => this.#isPrimary },
      stored: async (after: string) =>
        (await service.query(
          { kind: 'volume-export', number, after },
          true,
        )) as QueryResults['volume-export'],
    };
    return importVolume(parts, imported).catch(async (error: unknown) => {
      if (!(error instanceof ServiceError) || error.code !== 'integrity') throw error;
      log.error({ err: error, volume: name }, 'the copy of a volume differs: its move is ended');
      await abortMove(name);
      return false;
    });
  }

  /** What the catalog has to execute next to follow the list; null if it does. */
  #commandFor(row: CatalogRow, { begun, closed, refused, servers }: OwnCatalogState): KeeperCommand | null {
    if (closed) return null;
    if (row.state === 'removing' && (refused?.since ?? 0) < row.since)
      return { kind: 'catalog-close', since: row.since };
    const { number, name, settings, state, moving } = row;
    const listed = [...this.#parts.servers()];
    const moved = moving === undefined ? {} : ({ moved: true } as const);
    if (!begun)
      // With the servers' states: it must not place files where the root catalog has begun to drain.
      return state === 'creating'
        ? { kind: 'catalog-begin', number, name, settings, servers: listed, ...moved }
        : null;
    const known = new Map(servers.map(({ id, since }) => [id, since]));
    const changed = listed.filter(({ id, since }) => since > (known.get(id) ?? -1));
    return changed.length === 0 ? null : { kind: 'follow-servers', servers: changed };
  }

  async #state(): Promise<OwnCatalogState> {
    return (await this.#parts.service.query(
      { kind: 'catalog-state' },
      true,
    )) as QueryResults['catalog-state'];
  }

  /**
   * The state, and then the view, are read before the flush, in one epoch. No later change of members makes a server a
   * member that the state says is draining.
   * @throws ServiceError `not-primary` if this server has stopped being the primary
   */
  async #reportFlushed(row: CatalogRow): Promise<void> {
    const { service, report } = this.#parts;
    const { epoch } = service.status();
    const state = await this.#state();
    const reports = reportsOf(row, state, this.#parts.view());
    const unreported = reports.filter((one) => !this.#reported.has(JSON.stringify(one)));
    if (unreported.length > 0) await service.flush();
    if (!this.#isPrimary || service.status().epoch !== epoch)
      throw new ServiceError('not-primary', 'The primary of the catalog changed during a flush');
    for (const one of unreported) {
      await report(one);
      this.#reported.add(JSON.stringify(one));
    }
    if (state.servers.some((server) => server.state === 'draining')) this.#checkDrainLater();
  }

  #checkDrainLater(): void {
    this.#drainCheck?.cancel();
    if (!this.#work.isClosed) this.#drainCheck = this.#parts.world.after(DRAIN_CHECK_MS, () => this.wake());
  }
}

/** What the root catalog does not know yet, by its list. */
function reportsOf(row: CatalogRow, state: OwnCatalogState, view: View | null): CatalogReport[] {
  const reports: CatalogReport[] = [];
  const { begun, closed, refused } = state;
  if (row.state === 'creating' && begun) reports.push({ kind: 'created' });
  if (row.state === 'removing' && closed) reports.push({ kind: 'closed' });
  if (row.state === 'removing' && refused !== null && refused.since === row.since)
    reports.push({ kind: 'refused', ...refused });
  if (view === null || view.joint !== undefined || closed || !begun) return reports;
  const { number, members } = view;
  if (number > row.view) reports.push({ kind: 'view', view: number, members: [...members] });
  for (const { id, state: serverState, since, holds } of state.servers)
    if (serverState === 'draining' && !holds && !(members as readonly string[]).includes(id))
      reports.push({ kind: 'none-left', server: id, since });
  return reports;
}
