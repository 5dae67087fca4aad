/**
 * Goal: a volume's catalog gives out no inode number twice, whatever a loss of power of all servers undoes.
 * Method: the service of a primary with a real database, of which a copy is made when it flushes.
 */
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type Incarnation, inodesOf, type ServerId } from '../../base/ids.ts';
import { type CatalogServiceParts, LocalCatalogService } from '../../server/catalog/catalog-service.ts';
import { CatalogSubject } from '../../server/catalog/catalog-subject.ts';
import { Clock } from '../../server/process/clock.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';
import { temporaryFolder } from '../storage/stores.ts';

const SELF = 'a' as ServerId;
const NUMBER = 1 as CatalogNumber;
const WINDOW = 2 ** 16;
const COUNT_MAX = 4_096;
const { first: ROOT_INODE, end: END } = inodesOf(NUMBER);
const FILES = ['catalog.db', 'catalog.db-wal'];

let sessions = 0;

function copied(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const file of FILES)
    if (existsSync(path.join(from, file))) copyFileSync(path.join(from, file), path.join(to, file));
}

/** The only member of a volume's catalog, from one loss of power to the next. */
class Primary {
  readonly folder: string;
  readonly #store: CatalogStore;
  readonly #service: LocalCatalogService;
  readonly #roles: (() => void)[] = [];
  /** Flushes wait for it. */
  disk: Promise<void> = Promise.resolve();
  flushes = 0;
  batches = 0;
  #copies = 0;
  #durable: string | null = null;

  private constructor(folder: string, store: CatalogStore, epoch: number) {
    this.folder = folder;
    this.#store = store;
    const subject = new CatalogSubject(store);
    const at = { counter: epoch, server: SELF, incarnation: 7 as Incarnation };
    let ordered = store.record().seq;
    const driver = {
      ...{ isPrimary: true, role: 'active', epoch: at },
      get orderedSeq() {
        return ordered;
      },
      status: () => ({ seq: store.record().seq, epoch: at }),
      onRole: (listener: () => void) => this.#roles.push(listener),
      flush: () => this.#flush(),
      submit: async ({ body }: { body: Uint8Array }) => {
        const seq = ++ordered;
        this.batches += 1;
        await nextTurn();
        await subject.apply(at, seq, { request: null, body } as never);
      },
    };
    this.#service = new LocalCatalogService({
      ...{ catalog: NUMBER, self: SELF, world: patientWorld, driver, subject, operationTimeoutMs: 60_000 },
      clock: new Clock(patientWorld),
      lease: { view: () => ({ own: true, holder: null }) },
      recaller: {
        refusal: () => null,
        isCached: () => false,
        block: () => undefined,
        release: () => undefined,
        directoriesToRecall: () => [],
      },
      placement: () => [SELF],
      commandsVersion: () => null,
      isConnected: () => true,
    } as unknown as CatalogServiceParts);
  }

  static async start(folder: string, epoch: number): Promise<Primary> {
    const view = { number: 1, members: [SELF] };
    const store = await CatalogStore.open({ world: patientWorld, folder, catalog: NUMBER, view });
    const at = { counter: epoch, server: SELF, incarnation: 7 as Incarnation };
    await store.promise(at);
    await store.install(at, store.record().seq, null);
    return new Primary(folder, store, epoch);
  }

  /** What is committed when the flush begins is durable when it ends. */
  async #flush(): Promise<void> {
    this.flushes += 1;
    const copy = path.join(this.folder, `durable-${++this.#copies}`);
    copied(this.folder, copy);
    await this.disk;
    this.#durable = copy;
  }

  run<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }>,
  ): Promise<CommandResults[Kind]> {
    const request = { session: ++sessions, number: 1, command };
    return this.#service.execute(request) as Promise<CommandResults[Kind]>;
  }

  async begin(): Promise<void> {
    const servers = [
      { id: SELF, url: 'http://a:1', zone: '', state: 'in', since: 0, storageId: 's' },
    ] as const;
    const settings = { replicas: 1, objectBytes: 4096 };
    await this.run({ kind: 'catalog-begin', number: NUMBER, name: 'main', settings, servers: [...servers] });
  }

  async reserve(count = COUNT_MAX): Promise<number> {
    const { first } = await this.run({ kind: 'reserve-inodes', owner: 5, count, members: [[SELF]] });
    return first;
  }

  becomePrimary(): void {
    for (const listener of this.#roles) listener();
  }

  get numbers() {
    return this.#store.numbers();
  }

  /** Waits until the service has nothing to do. */
  async idle(): Promise<void> {
    for (let turn = 0; turn < 50; turn++) await nextTurn();
  }

  /** @returns the primary of the next epoch, with what was flushed */
  async losePower(epoch: number): Promise<Primary> {
    assert.ok(this.#durable !== null);
    const folder = path.join(this.folder, `epoch-${epoch}`);
    copied(this.#durable, folder);
    await this.close();
    return Primary.start(folder, epoch);
  }

  async close(): Promise<void> {
    await this.#store.close();
  }
}

async function begun(t: TestContext): Promise<Primary> {
  const folder = temporaryFolder();
  t.after(() => rmSync(folder, { recursive: true }));
  const primary = await Primary.start(folder, 1);
  await primary.begin();
  await primary.idle();
  return primary;
}

test('a loss of power of all servers repeats no number', async (t) => {
  let primary = await begun(t);
  const given = new Set<number>();
  for (let epoch = 2; epoch < 5; epoch++) {
    for (let time = 0; time < 6; time++) {
      const first = await primary.reserve(8);
      for (let number = first; number < first + 8; number++) {
        assert.ok(!given.has(number), `Number ${number} was given out twice`);
        given.add(number);
      }
    }
    assert.ok(primary.numbers.next > primary.numbers.limit - WINDOW);
    primary = await primary.losePower(epoch);
  }
  await primary.close();
});

test('numbers beyond the flushed limit wait for the flush', async (t) => {
  const primary = await begun(t);
  const disk = Promise.withResolvers<void>();
  primary.disk = disk.promise;
  const perWindow = WINDOW / COUNT_MAX;
  const given: number[] = [];
  for (let time = 0; time < perWindow; time++) given.push(await primary.reserve());
  const { flushes } = primary;
  assert.equal(primary.numbers.limit, ROOT_INODE + 1 + 2 * WINDOW, 'It was raised ahead of need');
  const late: number[] = [];
  const waiting = primary.reserve().then((first) => late.push(first));
  const failure = waiting.then(
    () => null,
    (error: ServiceError) => error.code,
  );
  await primary.idle();
  assert.deepEqual([late, primary.flushes], [[], flushes]);
  const later = await primary.losePower(2);
  assert.deepEqual([later.numbers.limit, later.numbers.next], [ROOT_INODE + 1 + WINDOW, ROOT_INODE + 1]);
  disk.reject(new ServiceError('storage', 'The power is lost'));
  assert.equal(await failure, 'storage');
  const first = await later.reserve();
  assert.ok(given.every((number) => number + COUNT_MAX <= first));
  await later.close();
});

test('as long as the disks keep up, no batch waits for the limit, and few raise it', async (t) => {
  const primary = await begun(t);
  const { batches, flushes } = primary;
  const times = (4 * WINDOW) / COUNT_MAX;
  for (let time = 0; time < times; time++) await primary.reserve();
  assert.deepEqual([primary.batches - batches, primary.flushes - flushes], [times + 4, 4]);
  await primary.close();
});

test('the commands of one batch get all their numbers, however many', async (t) => {
  const primary = await begun(t);
  const firsts = await Promise.all(Array.from({ length: 60 }, () => primary.reserve()));
  assert.equal(new Set(firsts).size, 60);
  await primary.close();
});

test('a new epoch has numbers before the first command asks for some', async (t) => {
  const first = await begun(t);
  const primary = await first.losePower(2);
  const { limit } = primary.numbers;
  primary.becomePrimary();
  await primary.idle();
  assert.deepEqual([primary.numbers.limit, primary.flushes], [limit + WINDOW, 1]);
  const { batches } = primary;
  assert.equal(await primary.reserve(), limit);
  assert.equal(primary.batches, batches + 1);
  await primary.close();
});

test('a batch whose limit cannot be flushed is refused; the next one tries again', async (t) => {
  const primary = await begun(t);
  const why = new ServiceError('storage', 'The disk is gone');
  primary.disk = Promise.reject(why);
  primary.disk.catch(() => undefined);
  for (let time = 0; time < WINDOW / COUNT_MAX; time++) await primary.reserve();
  await assert.rejects(primary.reserve(), why);
  await primary.run({ kind: 'sweep', countMax: 1 });
  primary.disk = Promise.resolve();
  await primary.reserve();
  await primary.close();
});

test('a catalog begins, and commands that came with its beginning get numbers then', async (t) => {
  const folder = temporaryFolder();
  t.after(() => rmSync(folder, { recursive: true }));
  const primary = await Primary.start(folder, 1);
  const place = { volume: 'main', path: '/d' };
  const make = { kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 } as const;
  const [, made] = await Promise.all([primary.begin(), primary.run(make)]);
  assert.equal(made.attributes.inode, ROOT_INODE + 1);
  await primary.close();
});

test('the last numbers of a catalog are given out, and then no more', async (t) => {
  const primary = await begun(t);
  await primary.run({ kind: 'extend-numbers', limit: END });
  const last = await primary.losePower(2);
  await assert.rejects(last.reserve(1), { code: 'no-space' });
  await last.close();
});
