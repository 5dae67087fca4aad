/**
 * Goal: requests that attach and detach a volume at the same time end in a state that the list shows, and that the same
 * requests complete; also if one of them is broken off after any of its steps.
 * Method: all interleavings of the steps of two requests, over the tables of a root catalog and of a volume's.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf, ROOT_CATALOG } from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import { executeRequests } from '../../catalog/batch.ts';
import { runQuery } from '../../catalog/queries.ts';
import { type CatalogDatabase, ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import { Attachments } from '../../server/routing/attachments.ts';
import type { Command, Query } from '../../wire/catalog-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { Root } from '../catalog/root.ts';

const PARENT = 2 as CatalogNumber;
/** The volume to be attached, and one of each kind in which it may be. */
const VOLUME = 'team';
const PARENTS = ['main', 'own'];
const PATHS = ['/x', '/y'] as const;

type Path = (typeof PATHS)[number];
type Request = (attachments: Attachments, parent: string) => Promise<unknown>;

const attach =
  (path: Path): Request =>
  (attachments, volume) =>
    attachments.attach(VOLUME, { volume, path });
const detach =
  (path: Path): Request =>
  (attachments, volume) =>
    attachments.detachAt({ volume, path });
const detachVolume: Request = (attachments) => attachments.detachVolume(VOLUME);
/** One request after the other. */
const move =
  (path: Path): Request =>
  async (attachments, parent) => {
    await detachVolume(attachments, parent);
    return attach(path)(attachments, parent);
  };

function execute(db: CatalogDatabase, number: number, command: Command): unknown {
  db.exec('BEGIN');
  const context = { nowNs: BigInt(number), placement: () => [] };
  const { outcomes } = executeRequests(db, number, [{ session: number, number: 1, command }], context);
  db.exec('COMMIT');
  const [outcome] = outcomes;
  assert.ok(outcome !== undefined);
  return outcomeResult(outcome);
}

/** Both catalogs, before anything is attached. */
const BEFORE: ReadonlyMap<CatalogNumber, Buffer> = (() => {
  const root = new Root();
  assert.equal(root.ready(VOLUME).number, 1);
  assert.equal(root.ready('own').number, PARENT);
  const own = new Database(':memory:');
  ensureSchema(own, PARENT);
  const settings = { replicas: 3, objectBytes: 4096 };
  execute(own, 1, { kind: 'catalog-begin', number: PARENT, name: 'own', settings, servers: [] });
  execute(own, 2, { kind: 'extend-numbers', limit: Number.MAX_SAFE_INTEGER });
  return new Map([
    [ROOT_CATALOG, root.db.serialize()],
    [PARENT, own.serialize()],
  ]);
})();

/** The two catalogs, and the steps of requests, each of which waits for its turn. */
class Course {
  readonly #catalogs = new Map([...BEFORE].map(([number, bytes]) => [number, new Database(bytes)]));
  readonly waiting: (() => void)[][] = [];
  #executed = 1_000;

  attachments(request: number): Attachments {
    const steps: (() => void)[] = [];
    this.waiting[request] = steps;
    const step = () => new Promise<void>((resolve) => steps.push(resolve));
    let list: readonly ListedCatalog[] = [];
    const catalogs = {
      ofInode: (inode: number) => InodeCatalogs.NONE_MOVED.catalogOf(inode),
      ofVolume: (name: string) => list.find((row) => row.name === name)?.number ?? ROOT_CATALOG,
      row: (number: number) => list.find((row) => row.number === number) ?? null,
      refresh: async () => {
        list = runQuery<'catalogs'>(this.#at(ROOT_CATALOG), { kind: 'catalogs' }).catalogs;
      },
    };
    return new Attachments({
      services: { catalogs },
      durably: async (command: Command) => {
        await step();
        return execute(this.#at(this.#catalogOf(command)), ++this.#executed, command);
      },
      queryCatalog: async (query: Query) => {
        if (query.kind === 'volume') {
          await catalogs.refresh();
          return { volume: { root: inodesOf(catalogs.ofVolume(query.name) as CatalogNumber).first } };
        }
        await step();
        return runQuery(this.#at(this.#catalogOf(query)), query as never);
      },
    } as unknown as ConstructorParameters<typeof Attachments>[0]);
  }

  row(): ListedCatalog | undefined {
    const { catalogs } = runQuery<'catalogs'>(this.#at(ROOT_CATALOG), { kind: 'catalogs' });
    return catalogs.find(({ name }) => name === VOLUME);
  }

  /** The directories at which the volume may be attached. */
  junctions(): number[] {
    const text = 'SELECT inode FROM junctions WHERE catalog = 1';
    return [...this.#catalogs.values()].flatMap((db) =>
      (db.prepare(text).all() as { readonly inode: number }[]).map(({ inode }) => inode),
    );
  }

  close(): void {
    for (const db of this.#catalogs.values()) db.close();
  }

  #at(number: CatalogNumber): CatalogDatabase {
    const db = this.#catalogs.get(number);
    assert.ok(db !== undefined);
    return db;
  }

  #catalogOf(request: Command | Query): CatalogNumber {
    if (request.kind === 'volume-attach' || request.kind === 'volume-detach') return ROOT_CATALOG;
    if ('inode' in request) return InodeCatalogs.NONE_MOVED.catalogOf(request.inode as number);
    const volume = 'place' in request ? (request.place as { readonly volume: string }).volume : undefined;
    return (volume ?? (request as { readonly volume: string }).volume) === 'own' ? PARENT : ROOT_CATALOG;
  }
}

/** Chooses in each run what it has not chosen yet, until all has been chosen. */
class Choices {
  #made: { readonly of: number; chosen: number }[] = [];
  #place = 0;

  choose(of: number): number {
    const made = this.#made[this.#place];
    if (made === undefined) this.#made.push({ of, chosen: 0 });
    this.#place++;
    return made?.chosen ?? 0;
  }

  /** @returns false after the last run */
  next(): boolean {
    this.#place = 0;
    while (this.#made.length > 0) {
      const last = this.#made.at(-1) as { readonly of: number; chosen: number };
      last.chosen++;
      if (last.chosen < last.of) return true;
      this.#made.pop();
    }
    return false;
  }
}

type Outcome = 'done' | 'refused' | 'broken off';

/** @returns the outcome of each request, in one of the interleavings of their steps */
async function play(
  course: Course,
  requests: readonly Request[],
  parent: string,
  choices: Choices,
): Promise<readonly Outcome[]> {
  const outcomes: Outcome[] = requests.map(() => 'broken off');
  requests.forEach((request, place) => {
    request(course.attachments(place), parent).then(
      () => {
        outcomes[place] = 'done';
      },
      (error: unknown) => {
        if (!(error instanceof ServiceError)) throw error;
        outcomes[place] = 'refused';
      },
    );
  });
  for (let mayBreak = true; ; ) {
    await turn();
    const ready = course.waiting.filter((steps) => steps.length > 0);
    if (ready.length === 0) return outcomes;
    const chosen = choices.choose(mayBreak ? ready.length * 2 : ready.length);
    const step = ready[chosen % ready.length]?.pop();
    if (chosen < ready.length) step?.();
    else mayBreak = false;
  }
}

async function alone(course: Course, request: Request, parent: string): Promise<Outcome | undefined> {
  const choices = new Choices();
  const running = play(course, [request], parent, choices);
  return (await running)[0];
}

/** The same requests lead from every state to an attached volume, and back to one that is attached nowhere. */
async function assertCompletes(course: Course, parent: string): Promise<void> {
  await alone(course, detachVolume, parent);
  assert.equal(await alone(course, attach('/x'), parent), 'done');
  const attached = course.row()?.attached ?? 0;
  assert.ok(course.junctions().includes(attached), 'It is attached at a directory that exists');
  for (const path of PATHS) await alone(course, detach(path), parent);
  assert.deepEqual([course.row()?.attached, course.junctions()], [undefined, []]);
}

/** What may be true after all have been answered. */
interface Ends {
  readonly attached: boolean;
  readonly outcomes: readonly Outcome[];
}

interface Case {
  readonly name: string;
  /** Requests before those that are interleaved. */
  readonly before?: readonly Request[];
  readonly requests: readonly Request[];
  /** Which ends are impossible. */
  isWrong(ends: Ends): boolean;
}

const CASES: readonly Case[] = [
  {
    name: 'an attachment and a detachment of one directory',
    requests: [attach('/x'), detach('/x')],
    isWrong: ({ attached, outcomes: [first, second] }) =>
      attached !== (first === 'done' && second !== 'done'),
  },
  {
    name: 'an attachment at the same directory again, and its detachment',
    before: [attach('/x')],
    requests: [attach('/x'), detach('/x')],
    isWrong: ({ attached, outcomes: [first, second] }) => second !== 'done' || (attached && first !== 'done'),
  },
  {
    name: 'a detachment, and an attachment at another directory',
    before: [attach('/x')],
    requests: [detach('/x'), attach('/y')],
    isWrong: ({ attached, outcomes: [first, second] }) =>
      first !== 'done' || attached !== (second === 'done'),
  },
  {
    name: 'attachments at two directories',
    requests: [attach('/x'), attach('/y')],
    isWrong: ({ attached, outcomes }) =>
      !attached || outcomes.filter((outcome) => outcome === 'done').length !== 1,
  },
  {
    name: 'two attachments at one directory',
    requests: [attach('/x'), attach('/x')],
    isWrong: ({ attached, outcomes }) => !attached || outcomes.includes('refused'),
  },
  {
    name: 'a refused attachment, and later ones of the volume at the same directory',
    before: [attach('/y')],
    requests: [attach('/x'), move('/x')],
    isWrong: ({ attached, outcomes: [, second] }) => !attached || second !== 'done',
  },
  {
    name: 'two detachments, by path and by name',
    before: [attach('/x')],
    requests: [detach('/x'), detachVolume],
    isWrong: ({ attached, outcomes }) => attached || !outcomes.includes('done'),
  },
];

for (const { name, before = [], requests, isWrong } of CASES)
  for (const parent of PARENTS)
    test(`${name}, in volume "${parent}"`, async () => {
      const choices = new Choices();
      let runs = 0;
      do {
        const course = new Course();
        for (const request of before) assert.equal(await alone(course, request, parent), 'done');
        const outcomes = await play(course, requests, parent, choices);
        const { attached } = course.row() ?? {};
        if (!outcomes.includes('broken off')) {
          const ends = { attached: attached !== undefined, outcomes };
          assert.equal(isWrong(ends), false, JSON.stringify(ends));
          const left = attached === undefined ? [] : [attached];
          assert.deepEqual(course.junctions(), left, `Exactly the attached one exists: ${outcomes.join()}`);
        }
        await assertCompletes(course, parent);
        course.close();
        runs++;
      } while (choices.next());
      assert.ok(runs > 20, `${runs} interleavings`);
    });
