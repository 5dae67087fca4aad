import { type CatalogNumber, type FileId, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import type { WrongCounter } from '../../catalog/recount.ts';
import type { View } from '../../replica/view.ts';
import type {
  ClusterSettings,
  Command,
  CommandResults,
  Query,
  QueryResults,
  ServerInfo,
} from '../../wire/catalog-api.ts';
import type { Moving } from '../../wire/http-api.ts';
import { CloneFills } from '../catalog/clone-fills.ts';
import { CounterCheck, type CounterCheckParts } from '../catalog/counter-check.ts';
import { QuotaWalks } from '../catalog/quota-walks.ts';
import { Garbage, type GarbageParts } from '../file/garbage.ts';
import {
  ReservationSweep,
  type ReservationSweepParts,
  type Unsettleable,
} from '../file/reservation-sweep.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';
import { Registrar, type RegistrarParts } from './registrar.ts';
import { Steward, type StewardParts } from './steward.ts';
import type { ServerCondition } from './wanted-members.ts';

/** Bounds of the period in which live files are settled; within them it is the grace time of unlinked files. */
const LIVE_SWEEP_MS = { least: 10_000, most: 600_000 };

/** One catalog, as its upkeep uses it. */
export interface CatalogAccess {
  readonly number: CatalogNumber;
  command<C extends Command>(command: C): Promise<CommandResults[C['kind']]>;
  /** Answers with the catalog's own attributes of live files. */
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  /** The newest known epoch; it never decreases. */
  epoch(): number;
  /** The last operation here, and the last one that is known to be committed. */
  position(): string;
  /** Whether this server is the catalog's primary. */
  isPrimary(): boolean;
  members(): readonly ServerId[];
  /** The replica here; null if there is none. */
  store(): Pick<CatalogStore, 'withTemporaryTables'> | null;
}

/** What differs between the root catalog and the catalogs of volumes. */
export interface CatalogDuties {
  readonly registration: Pick<
    RegistrarParts,
    'zone' | 'labels' | 'periodMs' | 'spaceStep' | 'listed' | 'confirmed' | 'removed' | 'replaced'
  >;
  readonly candidates: StewardParts['candidates'];
  readonly membersWanted: StewardParts['catalogMembersWanted'];
  readonly rebalancePeriodMs: number;
  readonly partToBalance: StewardParts['partToBalance'];
  changeMembers(members: readonly ServerId[]): Promise<View>;
  /** The catalog's list of servers, as its primary has just read it. */
  announce(servers: readonly ServerInfo[], settings: ClusterSettings | null): void;
}

type OfCatalog = 'catalog' | 'isCatalogPrimary' | 'catalogPosition' | 'catalogEpoch' | 'command' | 'query';
type OfSteward =
  | 'candidates'
  | 'catalogMembers'
  | 'catalogMembersWanted'
  | 'changeCatalogMembers'
  | 'announce'
  | 'rebalancePeriodMs'
  | 'partToBalance'
  | 'periodMs';

/** What the upkeep of all catalogs on one server shares. */
export interface UpkeepParts
  extends Omit<GarbageParts, OfCatalog>,
    Omit<StewardParts, OfCatalog | OfSteward>,
    Pick<RegistrarParts, 'url' | 'storageId' | 'space'>,
    Pick<ReservationSweepParts, 'settle'>,
    Pick<CounterCheckParts, 'recountTurns'> {
  /** Called with the first file id of the catalog that no earlier disk of this server can have had. */
  firstFileKnown(catalog: CatalogNumber, file: FileId): void;
  /** @see CloneFillsParts.fillFile */
  fillFile(file: FileId): Promise<void>;
  countersWrong(wrong: readonly WrongCounter[]): void;
}

/**
 * The background work of one server for one catalog. Every server registers with the catalog and removes replicas of
 * its files that it does not need; the catalog's primary also moves and settles files and counts again.
 */
export class CatalogUpkeep {
  readonly #registrar: Registrar;
  readonly #steward: Steward;
  readonly #garbage: Garbage;
  readonly #sweeps: readonly ReservationSweep[];
  readonly #counterCheck: CounterCheck;
  readonly #quotaWalks: QuotaWalks;
  /** Null in the catalogs of volumes, which have no clones. */
  readonly #cloneFills: CloneFills | null;

  constructor(parts: UpkeepParts, catalog: CatalogAccess, duties: CatalogDuties) {
    const ofCatalog = {
      catalog: catalog.number,
      isCatalogPrimary: () => catalog.isPrimary(),
      catalogPosition: () => catalog.position(),
      catalogEpoch: () => catalog.epoch(),
      command: <C extends Command>(command: C) => catalog.command(command),
      query: <Q extends Query>(query: Q) => catalog.query(query),
    };
    this.#registrar = new Registrar({
      ...parts,
      ...ofCatalog,
      ...duties.registration,
      firstFileKnown: (file) => parts.firstFileKnown(catalog.number, file),
    });
    this.#steward = new Steward({
      ...parts,
      ...ofCatalog,
      catalogMembers: () => catalog.members(),
      candidates: (servers) => duties.candidates(servers),
      catalogMembersWanted: (servers) => duties.membersWanted(servers),
      changeCatalogMembers: (members) => duties.changeMembers(members),
      rebalancePeriodMs: duties.rebalancePeriodMs,
      partToBalance: (own) => duties.partToBalance(own),
      announce: (servers, settings) => duties.announce(servers, settings),
    });
    this.#garbage = new Garbage({ ...parts, ...ofCatalog });
    const livePeriodMs = Math.min(LIVE_SWEEP_MS.most, Math.max(LIVE_SWEEP_MS.least, parts.graceMs));
    this.#sweeps = [
      new ReservationSweep({ ...parts, ...ofCatalog }),
      new ReservationSweep({ ...parts, ...ofCatalog, live: true, periodMs: livePeriodMs }),
    ];
    this.#quotaWalks = new QuotaWalks({ ...parts, ...ofCatalog });
    this.#cloneFills = catalog.number === ROOT_CATALOG ? new CloneFills({ ...parts, ...ofCatalog }) : null;
    this.#counterCheck = new CounterCheck({
      ...parts,
      ...ofCatalog,
      store: () => catalog.store(),
      found: (wrong) => parts.countersWrong(wrong),
    });
  }

  start(): void {
    this.#registrar.start();
  }

  close(): void {
    this.#registrar.close();
    this.#steward.close();
    this.#garbage.close();
    for (const sweep of this.#sweeps) sweep.close();
    this.#counterCheck.close();
    this.#quotaWalks.close();
    this.#cloneFills?.close();
  }

  /** Whether the catalog has this server and its disk. */
  get registered(): boolean {
    return this.#registrar.registered;
  }

  /** Counters of the catalog that this server, as its primary, found wrong. */
  get wrongCounters(): readonly WrongCounter[] {
    return this.#counterCheck.wrong;
  }

  /** Volumes of the catalog, as its primary, that lack servers for their files; as clauses. */
  get shortages(): readonly string[] {
    return this.#steward.shortages;
  }

  get unsettleable(): readonly Unsettleable[] {
    const found = this.#sweeps.flatMap(({ unsettleable }) =>
      unsettleable.map((one) => [one.file, one] as const),
    );
    return [...new Map(found).values()];
  }

  /** Null unless this server is the catalog's primary. */
  moving(): Moving | null {
    return this.#steward.moving();
  }

  /** @see ServerConditions.of */
  conditions(servers: readonly ServerInfo[]): ServerCondition[] {
    return this.#steward.conditions(servers);
  }

  /** A replica of a file of the catalog was created here, or its view changed. */
  placed(file: FileId): void {
    this.#garbage.placed(file);
  }
}
