/**
 * Goal: what needs a directory of a clone waits until it is filled, and nothing else does; each directory is filled by
 * as few commands as it needs.
 * Method: `DirectoryFills` with a catalog that counts, and the catalog's service with answers of its own.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { UnfilledDirectory } from '../../catalog/clone-tables.ts';
import { DirectoryFills } from '../../server/catalog/directory-fills.ts';
import type { CommandOf, CommandRequest } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';

/** Directories, each with the number of commands that fill it. */
class Directories {
  readonly left: Map<number, number>;
  readonly requests: CommandRequest[] = [];
  /** Thrown by the next command. */
  failure: Error | null = null;
  readonly fills = new DirectoryFills({
    world: patientWorld,
    seq: () => 5,
    execute: async (request) => {
      this.requests.push(request);
      await Promise.resolve();
      const { failure } = this;
      this.failure = null;
      if (failure !== null) throw failure;
      const { inode } = request.command as CommandOf<'clone-fill'>;
      const left = (this.left.get(inode) ?? 0) - 1;
      this.left.set(inode, left);
      return { done: left <= 0 };
    },
  });

  constructor(left: readonly (readonly [number, number])[]) {
    this.left = new Map(left);
  }

  /** Needs all of them, one after the other. */
  use(...inodes: readonly number[]): Promise<string> {
    return this.fills.whenFilled(async () => {
      const unfilled = inodes.find((inode) => (this.left.get(inode) ?? 0) > 0);
      if (unfilled !== undefined) throw new UnfilledDirectory(unfilled);
      return 'answer';
    });
  }
}

test('a directory is filled once for all that need it, and another one besides', async () => {
  const directories = new Directories([
    [7, 3],
    [8, 1],
  ]);
  const uses = [directories.use(7), directories.use(7, 8), directories.use(8)];
  assert.deepEqual(await Promise.all(uses), ['answer', 'answer', 'answer']);
  assert.equal(directories.requests.length, 4);
  const sessions = new Set(directories.requests.map(({ session }) => session));
  const numbers = new Set(directories.requests.map(({ number }) => number));
  assert.deepEqual(
    [sessions.size, numbers.size],
    [1, 4],
    'In one session, which takes the place of one client',
  );
  assert.ok(directories.requests.every(({ since }) => since === 5));
  assert.equal(await directories.use(7), 'answer');
  assert.equal(directories.requests.length, 4);
});

test('a forgotten session is followed by another one', async () => {
  const directories = new Directories([[7, 2]]);
  directories.failure = new ServiceError('session-expired', 'Its outcomes are forgotten');
  assert.equal(await directories.use(7), 'answer');
  const [first, second, third] = directories.requests;
  assert.notEqual(first?.session, second?.session);
  assert.deepEqual([second?.number, third?.number], [1, 2]);
});

test('a failure is that of all that wait, and later uses begin again', async () => {
  const directories = new Directories([[7, 2]]);
  directories.failure = new ServiceError('not-primary', 'Another server is');
  const uses = [directories.use(7), directories.use(7)];
  for (const use of uses) await assert.rejects(use, { code: 'not-primary' });
  assert.equal(await directories.use(7), 'answer');
});

test('other errors are passed on', async () => {
  const { fills } = new Directories([]);
  await assert.rejects(
    fills.whenFilled(() => Promise.reject(new ServiceError('not-found', 'There is none'))),
    { code: 'not-found' },
  );
});
