/**
 * Goal: the root catalog's primary freezes a volume that moves once no client caches anything of it, and deletes its
 * rows once it has moved. Method: a root catalog that has its moves from the test, and the caches of real clients.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { Recaller, type RecallerParts } from '../../server/catalog/recaller.ts';
import { type MoveCommand, VolumeMoves, type VolumeMovesParts } from '../../server/catalog/volume-moves.ts';
import type { Query, QueryResults } from '../../wire/catalog-api.ts';
import type { VolumeMove } from '../../wire/volume-moves.ts';
import { patientWorld } from '../patient-world.ts';

const [SELF, OTHER] = ['a', 'b'] as [ServerId, ServerId];
/** Of the volume that moves, and of another one. */
const [LEAVING, STAYS] = [5, 6];

/** Slices of numbers to be recorded, and of rows to be deleted. */
const SLICES = 2;
/** Whatever goes wrong, a test ends. */
const COMMANDS_MAX = 5;

class Root {
  readonly commands: MoveCommand[] = [];
  moves: VolumeMove[] = [];
  primary = SELF;
  refusal: ServiceError | null = null;
  recall: () => Promise<void> = () => Promise.resolve();
  /** Catalogs without a primary. */
  closed: readonly number[] = [];
  readonly reports: string[] = [];
  readonly volumeMoves: VolumeMoves;
  #slices = 0;

  constructor() {
    const service = {
      status: () => ({ primary: this.primary }),
      query: async (): Promise<QueryResults['moves']> => ({ moves: this.moves }),
    } as unknown as VolumeMovesParts['service'];
    this.volumeMoves = new VolumeMoves({
      ...{ self: SELF, world: patientWorld, log: pino({ level: 'silent' }), service },
      volumeOf: (catalog) => `v${catalog}`,
      report: (volume, phase) => void this.reports.push(`${volume} ${phase}`),
      opened: async (catalog) => {
        if (this.closed.includes(catalog)) throw new ServiceError('no-majority', 'Its servers are away');
      },
      recallMoving: () => this.recall(),
      command: async (command) => this.#execute(command) as never,
    });
  }

  #execute(command: MoveCommand): object {
    if (this.refusal !== null) throw this.refusal;
    this.commands.push(command);
    if (this.commands.length === COMMANDS_MAX) this.primary = OTHER;
    const { kind, number } = command;
    const isLast = ++this.#slices === SLICES;
    if (kind === 'volume-freeze') this.#enter(number, 'frozen');
    else if (isLast) this.#enter(number, kind === 'volume-number' ? 'numbered' : 'forgotten');
    return kind === 'volume-number' ? { done: isLast } : { more: !isLast };
  }

  #enter(catalog: number, phase: VolumeMove['phase']): void {
    this.#slices = 0;
    this.moves = this.moves.map((move) => (move.catalog === catalog ? { catalog, phase } : move));
  }

  async advance(): Promise<string[]> {
    this.volumeMoves.wake();
    await this.volumeMoves.settled();
    return this.commands.splice(0).map(({ kind, number }) => `${kind} ${number}`);
  }
}

test('a volume is frozen once its caches are recalled; then its numbers are recorded', async () => {
  const root = new Root();
  const recalling = Promise.withResolvers<void>();
  const { promise, resolve } = Promise.withResolvers<void>();
  root.recall = () => {
    recalling.resolve();
    return promise;
  };
  root.moves = [{ catalog: 4, phase: 'begun' }];
  const advanced = root.advance();
  await recalling.promise;
  await turn();
  assert.deepEqual(root.moves, [{ catalog: 4, phase: 'begun' }]);
  resolve();
  assert.deepEqual(await advanced, ['volume-freeze 4', 'volume-number 4', 'volume-number 4']);
  assert.deepEqual(root.moves, [{ catalog: 4, phase: 'numbered' }]);
  assert.deepEqual(await root.advance(), [], 'The other catalog copies the rows');
  assert.deepEqual(root.reports, ['v4 frozen']);
});

test('a volume is not frozen before its catalog can begin; others move meanwhile', async () => {
  const root = new Root();
  root.moves = [
    { catalog: 4, phase: 'begun' },
    { catalog: 5, phase: 'begun' },
  ];
  root.closed = [4];
  assert.deepEqual(await root.advance(), ['volume-freeze 5', 'volume-number 5', 'volume-number 5']);
  assert.deepEqual(root.moves[0], { catalog: 4, phase: 'begun' });
  root.closed = [];
  assert.deepEqual(await root.advance(), ['volume-freeze 4', 'volume-number 4', 'volume-number 4']);
  root.volumeMoves.close();
});

test('rows of a volume are deleted once it has moved, whatever other moves wait for', async () => {
  const root = new Root();
  root.moves = [
    { catalog: 3, phase: 'forgotten' },
    { catalog: 4, phase: 'numbered' },
    { catalog: 5, phase: 'moved' },
  ];
  assert.deepEqual(await root.advance(), ['volume-forget 5', 'volume-forget 5']);
  assert.deepEqual(root.reports, ['v5 moved']);
});

test('only the primary moves volumes, and a step that failed is repeated', async () => {
  const root = new Root();
  root.moves = [{ catalog: 4, phase: 'frozen' }];
  root.primary = OTHER;
  assert.deepEqual(await root.advance(), []);
  root.primary = SELF;
  root.refusal = new ServiceError('no-majority', 'Too few servers are reachable');
  assert.deepEqual(await root.advance(), []);
  root.refusal = null;
  assert.deepEqual(await root.advance(), ['volume-number 4', 'volume-number 4']);
  root.volumeMoves.close();
});

function recallerOf(leavingInodes: RecallerParts['leavingInodes']) {
  let drawn = 0;
  const recaller = new Recaller({
    driver: { servesForMs: () => 60_000, noteCachedFor: () => undefined, onRole: () => () => undefined },
    options: { leaseMsMax: 60_000, sessionGrantsMax: 10_000, grantsMax: 10_000, draw: () => ++drawn },
    world: patientWorld,
    ...(leavingInodes === undefined ? {} : { leavingInodes }),
  } as RecallerParts);
  const ask = (query: Query) => {
    const inode = 'inode' in query ? query.inode : 0;
    return { attributes: { inode, live: false } } as never;
  };
  const poll = (session: number | null, acked = 0) =>
    recaller.poll({ client: 1, acked, fenced: true, ...(session === null ? {} : { session }) }, true);
  const grant = (inode: number, session: number) =>
    recaller.answer({ kind: 'attributes', inode }, session, ask).granted;
  return { recaller, ask, poll, grant };
}

test('what clients cache of a volume that moves is recalled, and nothing of it is granted again', async () => {
  let isMoving = false;
  const { recaller, ask, poll, grant } = recallerOf(() => (isMoving ? (inode) => inode === LEAVING : null));
  const { session } = await poll(null);
  assert.ok(session !== null);
  for (const inode of [LEAVING, STAYS]) assert.deepEqual(grant(inode, session), { session, refused: [] });
  const others = Array.from({ length: 2_500 }, (_, index) => 100 + index);
  for (const inode of others) grant(inode, session);
  isMoving = true;
  let isRecalled = false;
  const recalled = recaller.recallLeaving().then(() => {
    isRecalled = true;
  });
  const { recalls, through } = await poll(session);
  assert.deepEqual(recalls, [LEAVING]);
  await turn();
  assert.ok(!isRecalled);
  assert.deepEqual(grant(LEAVING, session), { session, refused: [LEAVING] });
  void poll(session, through);
  await recalled;
  assert.equal(recaller.counts().grants, 1 + others.length);
  assert.deepEqual(recaller.delegate(session, LEAVING), {});
  assert.ok(!recaller.grantChanged(session, { inode: LEAVING, live: false }));
  assert.equal(
    recaller.answerDelegating({ kind: 'list', inode: LEAVING } as Query, session, ask).delegated,
    undefined,
  );
  assert.equal(recaller.delegate(session, STAYS).delegated, session);
  // The move was ended.
  isMoving = false;
  assert.equal(recaller.delegate(session, LEAVING).delegated, session);
  await recaller.recallLeaving();
});
