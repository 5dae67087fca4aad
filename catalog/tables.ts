import { assert } from '../base/assert.ts';
import { AdoptedVersion } from './adopted-version.ts';
import { ChangeRecord, type NameChange } from './change-record.ts';
import { CloneTables } from './clone-tables.ts';
import { DeletionLog } from './deletion-log.ts';
import { DirectoryClassTables } from './directory-class-tables.ts';
import { DirectoryQuotaTables } from './directory-quota-tables.ts';
import { EntryTables } from './entry-tables.ts';
import { InodeLists } from './inode-lists.ts';
import { InodeNumbers } from './inode-numbers.ts';
import type { EntryRow, InodeRow } from './inode-rows.ts';
import { InodeTables } from './inode-tables.ts';
import { JunctionTables } from './junction-tables.ts';
import { OwnCatalog } from './own-catalog.ts';
import { PlacementTables } from './placement-tables.ts';
import { QuotaWalkTables } from './quota-walk-tables.ts';
import { RetentionTables } from './retention-tables.ts';
import type { CatalogDatabase } from './schema.ts';
import { ServerTables } from './server-tables.ts';
import { SessionTables } from './session-tables.ts';
import { SnapshotSweeps } from './snapshot-sweeps.ts';
import { SnapshotTables } from './snapshot-tables.ts';
import { SplitTables } from './split-tables.ts';
import { Statements } from './statements.ts';
import { TrashTables } from './trash-tables.ts';
import { VolumeCatalogTables } from './volume-catalog-tables.ts';
import { VolumeMoveTables } from './volume-move-tables.ts';
import { VolumeRowTables } from './volume-row-tables.ts';
import { VolumeTables } from './volume-tables.ts';
import { XattrTables } from './xattr-tables.ts';

/** A handle's tables; rules are in the commands. Prepared at first use: a reading handle prepares no writes. */
export class Tables {
  readonly own: OwnCatalog;
  readonly version: AdoptedVersion;
  readonly volumes: VolumeTables;
  readonly inodes: InodeTables;
  readonly numbers: InodeNumbers;
  readonly entries: EntryTables;
  readonly xattrs: XattrTables;
  readonly sessions: SessionTables;
  readonly servers: ServerTables;
  readonly catalogs: VolumeCatalogTables;
  readonly moves: VolumeMoveTables;
  readonly splits: SplitTables;
  readonly rows: VolumeRowTables;
  readonly placements: PlacementTables;
  readonly classes: DirectoryClassTables;
  readonly quotas: DirectoryQuotaTables;
  readonly walks: QuotaWalkTables;
  readonly junctions: JunctionTables;
  readonly trash: TrashTables;
  readonly retentions: RetentionTables;
  /** Every change of a row that snapshots show keeps a copy first. */
  readonly snapshots: SnapshotTables;
  readonly sweeps: SnapshotSweeps;
  readonly clones: CloneTables;
  readonly inodeLists: InodeLists;
  readonly deletions: DeletionLog;
  readonly #db: CatalogDatabase;
  readonly #statements: Statements;
  readonly #changes = new ChangeRecord();

  private constructor(db: CatalogDatabase) {
    this.#db = db;
    const statements = new Statements(db);
    const changes = this.#changes;
    this.#statements = statements;
    this.own = new OwnCatalog(statements);
    this.version = new AdoptedVersion(statements);
    this.volumes = new VolumeTables(statements);
    this.numbers = new InodeNumbers(statements, this.own);
    this.sessions = new SessionTables(statements);
    this.servers = new ServerTables(statements);
    this.catalogs = new VolumeCatalogTables(statements);
    this.moves = new VolumeMoveTables(statements, this.own);
    this.splits = new SplitTables(statements);
    this.rows = new VolumeRowTables(statements);
    this.placements = new PlacementTables(statements);
    this.classes = new DirectoryClassTables(statements);
    this.quotas = new DirectoryQuotaTables(statements);
    this.walks = new QuotaWalkTables(statements);
    this.junctions = new JunctionTables(statements);
    this.trash = new TrashTables(statements);
    this.retentions = new RetentionTables(statements);
    this.clones = new CloneTables(statements);
    this.snapshots = new SnapshotTables(statements, this.clones);
    this.sweeps = new SnapshotSweeps(statements);
    this.inodeLists = new InodeLists(statements);
    this.deletions = new DeletionLog(statements);
    const {
      volumes,
      quotas,
      walks,
      numbers,
      placements,
      classes,
      trash,
      retentions,
      clones,
      snapshots,
      deletions,
    } = this;
    this.inodes = new InodeTables(statements, {
      ...{
        volumes,
        quotas,
        walks,
        numbers,
        placements,
        classes,
        trash,
        retentions,
        clones,
        snapshots,
        deletions,
        changes,
      },
    });
    this.entries = new EntryTables(statements, { clones, snapshots, walks, changes });
    this.xattrs = new XattrTables(statements, { snapshots, changes });
  }

  static readonly #ofHandle = new WeakMap<CatalogDatabase, Tables>();

  static of(db: CatalogDatabase): Tables {
    const known = Tables.#ofHandle.get(db);
    if (known !== undefined) return known;
    const tables = new Tables(db);
    Tables.#ofHandle.set(db, tables);
    return tables;
  }

  begin(): void {
    assert(this.#db.inTransaction, 'A command runs inside the transaction of its batch');
    this.#statements.run('SAVEPOINT command');
    this.snapshots.begin();
    this.walks.begin();
    this.#changes.begin();
  }

  releaseSavepoint(): void {
    this.#statements.run('RELEASE command');
  }

  undo(): void {
    this.#statements.run('ROLLBACK TO command');
    this.#changes.undo();
    this.#statements.run('RELEASE command');
  }

  /** @returns inodes with changed rows, entries or extended attributes since `forgetTouched` */
  touched(): number[] {
    return this.#changes.touched();
  }

  forgetTouched(): void {
    this.#changes.forgetTouched();
  }

  /** @returns changes of entries and contents since the last call, without rolled-back ones */
  takeChanges(): readonly NameChange[] {
    return this.#changes.take();
  }

  inode(id: number): InodeRow | undefined {
    return this.inodes.row(id);
  }

  child(parent: number, name: string): InodeRow | undefined {
    return this.entries.child(parent, name);
  }

  children(parent: number, after: string, countMax: number): EntryRow[] {
    return this.entries.children(parent, after, countMax);
  }

  xattr(inode: number, name: string): Uint8Array | undefined {
    return this.xattrs.value(inode, name);
  }

  xattrNames(inode: number): string[] {
    return this.xattrs.names(inode);
  }
}
