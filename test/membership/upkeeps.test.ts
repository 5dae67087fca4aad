/**
 * Goal: the upkeep of several catalogs on one server works side by side, each for its own files.
 * Method: a disk store with replicas of files of several catalogs, catalogs that answer as the test says, and a time
 * that the test lets pass.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type FileId, inodesOf, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { RecountTurns } from '../../server/catalog/counter-check.ts';
import { DepartedFiles } from '../../server/file/departed-files.ts';
import { RemovedCatalogs } from '../../server/file/removed-catalogs.ts';
import {
  type CatalogAccess,
  type CatalogDuties,
  CatalogUpkeep,
  type UpkeepParts,
} from '../../server/membership/catalog-upkeep.ts';
import type { KnownList } from '../../server/membership/known-catalogs.ts';
import { MoveLimits } from '../../server/membership/move-limits.ts';
import { Upkeeps } from '../../server/membership/upkeeps.ts';
import { volumeDuties } from '../../server/membership/volume-duties.ts';
import type { Command, CommandResults, Query, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { CatalogState } from '../../wire/volume-catalogs.ts';
import { DiskFixture } from '../storage/stores.ts';
import { ManualWorld } from './manual-world.ts';

const SELF = 's1' as ServerId;
const log = pino({ level: 'silent' });
const MINUTE_MS = 60_000;
const VOLUME = 1 as CatalogNumber;
const OTHER = 2 as CatalogNumber;

function fileOf(catalog: CatalogNumber, place: number): FileId {
  return (inodesOf(catalog).first + place) as FileId;
}

/** A catalog whose files are all in view 1 on this server. */
class FakeCatalog {
  readonly number: CatalogNumber;
  readonly files = new Set<FileId>();
  readonly registrations: Extract<Command, { kind: 'server-register' }>[] = [];
  /** Files for which it was asked where they are. */
  readonly asked = new Set<FileId>();
  /** Queries for servers: a server looks at its entry. */
  looks = 0;
  error: ServiceError | null = null;
  registrationError: ServiceError | null = null;
  bornAt: number;
  /** Of the root's list; null: it has none yet. */
  catalogsVersion: number | null = null;
  servers: ServerInfo[] = [];

  readonly #inodeCatalogs: () => InodeCatalogs;

  constructor(number: CatalogNumber, inodeCatalogs: () => InodeCatalogs) {
    this.number = number;
    this.#inodeCatalogs = inodeCatalogs;
    this.bornAt = fileOf(number, 3);
  }

  access(isPrimary: boolean): CatalogAccess {
    return {
      number: this.number,
      command: async (command) => this.#command(command) as never,
      query: async (query) => this.#query(query) as never,
      position: () => '',
      epoch: () => 1,
      isPrimary: () => isPrimary,
      members: () => [SELF],
      store: () => null,
    };
  }

  #command(command: Command): CommandResults[Command['kind']] {
    if (this.error !== null) throw this.error;
    if (command.kind !== 'server-register') return command.kind === 'collect' ? { inodes: [] } : {};
    this.registrations.push(command);
    if (this.registrationError !== null) throw this.registrationError;
    const { id, url, storageId, freeBytes, totalBytes } = command;
    const room = { freeBytes, totalBytes, bornAt: this.bornAt, registeredNs: '1' };
    const server: ServerInfo = { id, url, zone: '', state: 'in', storageId, ...room };
    this.servers = [server];
    return { server, ...(this.catalogsVersion === null ? {} : { catalogsVersion: this.catalogsVersion }) };
  }

  #query(query: Query): unknown {
    if (this.error !== null) throw this.error;
    switch (query.kind) {
      case 'placed':
        return this.#placed(query.inodes as unknown as readonly FileId[]);
      case 'deletions':
        return { rows: [], trimmed: 0, last: 0, written: true };
      case 'servers':
        if (!query.counts) this.looks++;
        return { servers: this.servers };
      case 'sweeps':
        return { pending: false };
      case 'volumes':
        return { volumes: [] };
      case 'files-on':
        return { files: [], more: false };
      default:
        return { files: [], next: null };
    }
  }

  #placed(inodes: readonly FileId[]): QueryResults['placed'] {
    // The caller takes any error for a failed round: tests compare `asked`.
    for (const inode of inodes) this.asked.add(inode);
    const files = inodes.flatMap((inode) => {
      const catalog = this.#inodeCatalogs().catalogOf(inode);
      assert.equal(catalog, this.number, 'A catalog decides about its own files');
      return this.files.has(inode) ? [{ inode, members: [SELF], view: 1, wanted: 1, sizeBytes: 0 }] : [];
    });
    return { files, reserved: [] };
  }
}

class OneServer {
  readonly world = new ManualWorld();
  readonly catalogs = new Map<CatalogNumber, FakeCatalog>();
  /** Versions of the list at registrations that the root catalog has confirmed. */
  readonly registeredAt: number[] = [];
  readonly disk: DiskFixture;
  readonly departed: DepartedFiles;
  readonly upkeeps: Upkeeps;
  list: KnownList = { version: 0, catalogs: [], servers: [] };
  inodeCatalogs = InodeCatalogs.NONE_MOVED;
  freeBytes = 1_000;
  /** Catalogs of which this server is primary. */
  readonly leads = new Set<CatalogNumber>();
  readonly failing = new Set<FileId>();
  ended = 0;
  #listChanged = (): void => undefined;

  private constructor(disk: DiskFixture, departed: DepartedFiles) {
    this.disk = disk;
    this.departed = departed;
    const parts = this.#parts();
    const inodeCatalogs = () => this.inodeCatalogs;
    this.upkeeps = new Upkeeps({
      known: {
        list: this.list,
        get inodeCatalogs() {
          return inodeCatalogs();
        },
        onChange: (listener) => {
          this.#listChanged = listener;
          return () => undefined;
        },
      },
      removed: new RemovedCatalogs({
        ...parts,
        removed: () =>
          this.list.catalogs.flatMap(({ number, state }) => (state === 'removed' ? [number] : [])),
        forget: (catalog) => disk.folder.forgetCatalog(catalog),
      }),
      root: (confirmed) => new CatalogUpkeep(parts, this.#access(ROOT_CATALOG), this.#rootDuties(confirmed)),
      ofVolume: (catalog) =>
        new CatalogUpkeep(
          parts,
          this.#access(catalog),
          volumeDuties({
            ...{ catalog, log },
            isConnected: () => true,
            changeMembers: () => assert.fail('There is no other server'),
          }),
        ),
    });
  }

  static async make(t: TestContext): Promise<OneServer> {
    const disk = await DiskFixture.make();
    const server = new OneServer(disk, await DepartedFiles.open(disk.folder.file('departed')));
    t.after(async () => {
      await server.upkeeps.close();
      await disk.dispose();
    });
    return server;
  }

  catalog(number: CatalogNumber): FakeCatalog {
    const known = this.catalogs.get(number) ?? new FakeCatalog(number, () => this.inodeCatalogs);
    this.catalogs.set(number, known);
    return known;
  }

  /** Creates replicas here. */
  replicas(...files: readonly FileId[]): void {
    for (const file of files) this.disk.store.create(file, { number: 1, members: [SELF] }, 4_096);
  }

  held(): FileId[] {
    return this.disk.store.list(0 as FileId, 100);
  }

  /** The list of catalogs that this server gets. */
  lists(...catalogs: readonly (readonly [CatalogNumber, CatalogState])[]): void {
    const rows = catalogs.map(([number, state]) => {
      return { number, state, name: `v${number}`, members: [SELF], view: 1, made: number, since: 1 };
    });
    Object.assign(this.list, { version: this.list.version + 1, catalogs: rows });
    this.#listChanged();
  }

  #access(number: CatalogNumber): CatalogAccess {
    const access = this.catalog(number).access(true);
    return { ...access, isPrimary: () => this.leads.has(number) };
  }

  #rootDuties(confirmed: () => void): CatalogDuties {
    return {
      registration: {
        ...{ zone: null, labels: null, periodMs: MINUTE_MS, spaceStep: 0.01 },
        confirmed: ({ catalogsVersion }) => {
          this.registeredAt.push(catalogsVersion);
          confirmed();
        },
        listed: () => undefined,
        removed: () => undefined,
        replaced: () => {
          this.ended++;
          return 'end';
        },
      },
      candidates: () => [],
      membersWanted: () => 1,
      changeMembers: () => assert.fail('There is no other server'),
      rebalancePeriodMs: MINUTE_MS,
      partToBalance: () => 1,
      announce: () => undefined,
    };
  }

  #parts(): UpkeepParts {
    const { store, folder } = this.disk;
    return {
      ...{ self: SELF, world: this.world, log, store, departed: this.departed },
      url: 'http://s1:1',
      storageId: 'store',
      space: async () => ({ freeBytes: this.freeBytes, totalBytes: 2_000 }),
      firstFileKnown: (catalog, file) => {
        if (folder.firstFileId(catalog) === null) folder.setFirstFileId(catalog, file);
      },
      host: {
        loaded: () => null,
        remove: async (file: FileId) => {
          if (this.failing.has(file)) throw new ServiceError('storage', 'The disk refused');
          await store.remove(file);
        },
      } as unknown as UpkeepParts['host'],
      lease: { close: () => undefined } as unknown as UpkeepParts['lease'],
      conflicts: { compare: () => false },
      graceMs: MINUTE_MS,
      inodeCatalogs: () => this.inodeCatalogs,
      isSpaceShort: () => false,
      nowNs: () => 0n,
      nowMs: () => this.world.nowMs(),
      hasPosition: async () => false,
      replicaAt: async () => null,
      open: async () => undefined,
      settle: async () => assert.fail('No file is live'),
      replaceAfterMs: MINUTE_MS,
      moveLimits: new MoveLimits(this.world, { filesPerS: Infinity, bytesPerS: Infinity }),
      recountTurns: new RecountTurns(),
      isConnected: () => true,
      knownPrimary: () => null,
      order: async () => assert.fail('Nothing moves'),
      changeMembers: async () => assert.fail('Nothing moves'),
      commandsVersion: () => COMMANDS_VERSION,
      fillFile: async () => undefined,
      countersWrong: () => undefined,
    };
  }
}

test('each catalog decides about replicas of its own files, also while another one has no primary', async (t) => {
  const server = await OneServer.make(t);
  const [root, volume, other] = [ROOT_CATALOG, VOLUME, OTHER].map((number) => server.catalog(number));
  assert.ok(root !== undefined && volume !== undefined && other !== undefined);
  const all = [ROOT_CATALOG, VOLUME, OTHER].flatMap((number) => [fileOf(number, 4), fileOf(number, 5)]);
  server.replicas(...all);
  for (const { number, files } of [root, volume, other]) files.add(fileOf(number, 4));
  volume.error = new ServiceError('no-majority', 'It has no primary');
  server.upkeeps.start();
  server.lists([VOLUME, 'ready'], [OTHER, 'removing']);
  await server.world.until(() => server.held().length === 4);
  assert.deepEqual(
    server.held(),
    all.filter((file) => file !== fileOf(ROOT_CATALOG, 5) && file !== fileOf(OTHER, 5)),
  );
  assert.deepEqual([root.asked.size, volume.asked.size, other.asked.size], [2, 0, 2]);
  volume.error = null;
  await server.world.until(() => server.held().length === 3);
  assert.deepEqual(
    server.held(),
    [ROOT_CATALOG, VOLUME, OTHER].map((number) => fileOf(number, 4)),
  );
  // A new replica is compared by the upkeep of its catalog, and no comparison of all replicas is due.
  for (const { asked } of [root, volume, other]) asked.clear();
  server.replicas(fileOf(VOLUME, 7));
  server.upkeeps.placed(fileOf(VOLUME, 7));
  await server.world.until(() => server.held().length === 3);
  assert.deepEqual([[...root.asked], [...volume.asked], [...other.asked]], [[], [fileOf(VOLUME, 7)], []]);
});

test("replicas of a catalog that is unknown here, or being created, stay; a removed catalog's are removed", async (t) => {
  const server = await OneServer.make(t);
  const [first, second, unknown] = [fileOf(VOLUME, 4), fileOf(OTHER, 4), fileOf(3 as CatalogNumber, 4)];
  server.replicas(first, second, unknown);
  await server.departed.add(fileOf(VOLUME, 9), { number: 2, members: [] });
  await server.departed.add(fileOf(OTHER, 9), { number: 2, members: [] });
  server.upkeeps.start();
  server.lists([VOLUME, 'ready'], [OTHER, 'creating']);
  server.catalog(VOLUME).files.add(first);
  const { folder } = server.disk;
  await server.world.until(() => folder.firstFileId(VOLUME) !== null);
  assert.deepEqual([server.upkeeps.of(OTHER), server.held()], [null, [first, second, unknown]]);
  assert.equal(folder.trustOfNew(fileOf(VOLUME, 5)), 'intact');
  server.failing.add(first);
  server.lists([VOLUME, 'removed'], [OTHER, 'ready']);
  server.catalog(OTHER).files.add(second).add(fileOf(OTHER, 9));
  await server.world.pass(10_000);
  assert.equal(server.upkeeps.of(VOLUME), null);
  assert.deepEqual(server.held(), [first, second, unknown], 'The disk refused');
  assert.notEqual(folder.firstFileId(VOLUME), null, 'Something is left');
  server.failing.clear();
  await server.world.until(() => folder.firstFileId(VOLUME) === null);
  assert.deepEqual(server.held(), [second, unknown]);
  assert.deepEqual(server.departed.files(), [fileOf(OTHER, 9)]);
  assert.equal(folder.trustOfNew(fileOf(VOLUME, 5)), null, 'It takes no replica of a removed catalog');
});

test("a server registers with volumes' catalogs once the root catalog has its disk", async (t) => {
  const server = await OneServer.make(t);
  const [root, volume] = [server.catalog(ROOT_CATALOG), server.catalog(VOLUME)];
  const { folder } = server.disk;
  root.error = new ServiceError('no-majority', 'It has no primary');
  server.upkeeps.start();
  server.lists([VOLUME, 'ready']);
  await server.world.pass(MINUTE_MS);
  assert.deepEqual([root.registrations.length, volume.registrations.length, volume.looks], [0, 0, 0]);
  root.error = null;
  await server.world.until(() => server.upkeeps.unregistered().length === 0);
  assert.deepEqual([root.registrations.length, volume.registrations.length], [1, 1]);
  assert.deepEqual(
    [ROOT_CATALOG, VOLUME].map((catalog) => folder.firstFileId(catalog)),
    [fileOf(ROOT_CATALOG, 3), fileOf(VOLUME, 3)],
  );
  assert.deepEqual(
    [2, 3].map((place) => folder.trustOfNew(fileOf(VOLUME, place))),
    ['lost', 'intact'],
  );
  // A catalog that is listed later registers the server at once.
  server.lists([VOLUME, 'ready'], [OTHER, 'ready']);
  assert.deepEqual(server.upkeeps.unregistered(), [OTHER]);
  await server.world.until(() => server.upkeeps.unregistered().length === 0);

  const before = volume.looks;
  server.freeBytes -= 60;
  await server.world.pass(11 * MINUTE_MS);
  assert.equal(volume.looks - before, 2, 'Each five minutes');
  assert.deepEqual(
    [root.registrations.length, volume.registrations.length],
    [2, 1],
    'Three percent of the disk',
  );
  server.freeBytes -= 60;
  await server.world.pass(11 * MINUTE_MS);
  assert.equal(volume.registrations.length, 2, 'Six percent');
});

test('the first registration dates the disk by the version of the list at that time, and names the release', async (t) => {
  const server = await OneServer.make(t);
  const root = server.catalog(ROOT_CATALOG);
  root.catalogsVersion = 7;
  server.upkeeps.start();
  await server.world.until(() => server.upkeeps.registered);
  root.catalogsVersion = 9;
  server.freeBytes -= 60;
  await server.world.until(() => root.registrations.length === 2);
  assert.deepEqual(server.registeredAt, [7]);
  assert.deepEqual(
    root.registrations.map(({ commandsVersion }) => commandsVersion),
    [COMMANDS_VERSION, COMMANDS_VERSION],
  );
  const earlier = await OneServer.make(t);
  earlier.upkeeps.start();
  await earlier.world.until(() => earlier.upkeeps.registered);
  assert.deepEqual(earlier.registeredAt, [0], 'A root catalog without a list has listed nothing');
});

test('a catalog that does not know this server yet is asked again after a second', async (t) => {
  const server = await OneServer.make(t);
  const volume = server.catalog(VOLUME);
  volume.registrationError = new ServiceError('busy', 'This catalog does not know server s1 yet');
  server.upkeeps.start();
  server.lists([VOLUME, 'ready']);
  await server.world.pass(3_500);
  assert.ok(volume.registrations.length >= 3);
  volume.registrationError = null;
  await server.world.pass(1_500);
  assert.deepEqual(server.upkeeps.unregistered(), []);
});

test('only the root catalog ends the process of an earlier disk', async (t) => {
  const server = await OneServer.make(t);
  const [root, volume] = [server.catalog(ROOT_CATALOG), server.catalog(VOLUME)];
  const later = new ServiceError('precondition-failed', 'Server s1 has run with another data folder since');
  volume.registrationError = later;
  server.upkeeps.start();
  server.lists([VOLUME, 'ready']);
  await server.world.until(() => volume.registrations.length >= 3);
  assert.deepEqual([server.ended, server.upkeeps.unregistered()], [0, [VOLUME]]);
  assert.equal(server.disk.folder.trustOfNew(fileOf(VOLUME, 5)), null, 'It takes no replica of its files');
  root.registrationError = later;
  server.freeBytes -= 100;
  await server.world.until(() => server.ended > 0);
  assert.deepEqual([server.ended, root.registrations.length], [1, 2], 'It does not try again');
});

test('what moves is reported by the primary of any catalog, and registered is who the root catalog knows', async (t) => {
  const server = await OneServer.make(t);
  server.upkeeps.start();
  server.lists([VOLUME, 'ready'], [OTHER, 'ready']);
  assert.deepEqual([server.upkeeps.moving(), server.upkeeps.registered], [null, false]);
  server.leads.add(OTHER);
  assert.equal(server.upkeeps.moving()?.total, 0);
  server.catalog(OTHER).error = new ServiceError('no-majority', 'It has no primary');
  await server.world.until(() => server.upkeeps.registered);
  assert.deepEqual(server.upkeeps.unregistered(), [OTHER]);
  assert.deepEqual([server.upkeeps.wrongCounters(), server.upkeeps.unsettleable()], [[], []]);
});

test('files of a volume that moved belong to its new catalog alone, from the list that says so', async (t) => {
  const server = await OneServer.make(t);
  const [stays, first, deleted, last, own] = [4, 10, 11, 19, inodesOf(VOLUME).first + 1] as FileId[];
  assert.ok(stays && first && deleted && last && own);
  server.replicas(stays, first, deleted, last, own);
  for (const file of [stays, first, deleted, last]) server.catalog(ROOT_CATALOG).files.add(file);
  for (const file of [first, last, own]) server.catalog(VOLUME).files.add(file);
  server.upkeeps.start();
  server.lists([VOLUME, 'creating']);
  await server.world.until(() => server.catalog(ROOT_CATALOG).asked.size === 4);
  // The list changes while replicas wait for the root catalog's answer.
  for (const file of [stays, first]) server.upkeeps.placed(file);
  for (const number of [ROOT_CATALOG, VOLUME]) server.catalog(number).asked.clear();
  server.inodeCatalogs = new InodeCatalogs([{ first: 10, end: 20, catalog: VOLUME }]);
  server.lists([VOLUME, 'ready']);
  await server.world.until(() => server.held().length === 4);
  assert.deepEqual(server.held(), [stays, first, last, own]);
  assert.deepEqual([...server.catalog(VOLUME).asked], [first, deleted, last, own]);
  assert.deepEqual([...server.catalog(ROOT_CATALOG).asked], [stays]);
  server.upkeeps.placed(last);
  server.catalog(VOLUME).files.delete(last);
  await server.world.until(() => server.held().length === 3);
});

test('a catalog that is removed takes the replicas with it that moved there, and no others', async (t) => {
  const server = await OneServer.make(t);
  const files = [9, 10, 19, 20, inodesOf(VOLUME).first + 1] as FileId[];
  server.replicas(...files);
  for (const file of [9, 20] as FileId[]) server.catalog(ROOT_CATALOG).files.add(file);
  server.inodeCatalogs = new InodeCatalogs([{ first: 10, end: 20, catalog: VOLUME }]);
  await server.departed.add(15 as FileId, { number: 2, members: [] });
  server.lists([VOLUME, 'removed']);
  await server.world.until(() => server.departed.files().length === 0);
  assert.deepEqual(server.held(), [9, 20]);
});
