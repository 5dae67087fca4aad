/**
 * What a test file with a bug imports in the place of `node:test`: its tests run one by one, when `play` asks for them.
 */
import { mock } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

const TEST_MS_MAX = 100_000;

type Callback = (context: Context) => unknown;

interface Hooks {
  readonly before: Callback[];
  readonly after: Callback[];
  readonly beforeEach: Callback[];
  readonly afterEach: Callback[];
}

interface Found {
  readonly name: string;
  readonly run: Callback;
  /** Of the file, and of the `describe` that the test is in, from the outside to the inside. */
  readonly hooks: readonly Hooks[];
}

/** The used part of `TestContext`. */
interface Context {
  readonly mock: typeof mock;
  after(callback: Callback): void;
  diagnostic(): void;
  skip(why?: string): void;
}

const found: Found[] = [];
let names: readonly string[] = [];
let hooks: readonly Hooks[] = [hooksNew()];

function hooksNew(): Hooks {
  return { before: [], after: [], beforeEach: [], afterEach: [] };
}

const adder = (kind: keyof Hooks) => (callback: Callback) => void hooks.at(-1)?.[kind].push(callback);

export const before = adder('before');
export const after = adder('after');
export const beforeEach = adder('beforeEach');
export const afterEach = adder('afterEach');

export function describe(name: string, ...given: unknown[]): void {
  const [outerNames, outerHooks] = [names, hooks];
  [names, hooks] = [
    [...names, name],
    [...hooks, hooksNew()],
  ];
  (given.at(-1) as () => void)();
  [names, hooks] = [outerNames, outerHooks];
}

export function test(name: string, ...given: unknown[]): void {
  found.push({ name: [...names, name].join(' '), run: given.at(-1) as Callback, hooks });
}

export { mock };

/**
 * Runs the tests whose titles contain `part`.
 * @returns the message of the first that fails, or null if all pass
 * @throws Error if there is none, or if one is skipped
 */
export async function play(part: string): Promise<string | null> {
  const chosen = found.filter(({ name }) => name.includes(part));
  if (chosen.length === 0) throw new Error(`There is no test "${part}"`);
  for (const one of chosen) {
    try {
      await Promise.race([
        testPlay(one),
        delay(TEST_MS_MAX).then(() => Promise.reject(new Unplayed(`"${one.name}" does not end`))),
      ]);
    } catch (error) {
      if (error instanceof Unplayed) throw error;
      return error instanceof Error ? error.message : String(error);
    }
  }
  return null;
}

/** Detects no bug: a test that hangs proves nothing about a rule. */
class Unplayed extends Error {}

async function testPlay({ name, run, hooks: around }: Found): Promise<void> {
  const ends: Callback[] = [];
  const context: Context = {
    mock,
    after: (callback) => void ends.unshift(callback),
    diagnostic: () => undefined,
    skip: (why) => {
      throw new Unplayed(`"${name}" was passed over: ${why}`);
    },
  };
  const all = async (callbacks: readonly Callback[]): Promise<void> => {
    for (const callback of callbacks) await callback(context);
  };
  try {
    await all(around.flatMap((one) => one.before));
    await all(around.flatMap((one) => one.beforeEach));
    await run(context);
  } finally {
    mock.reset();
    await all([...ends, ...around.flatMap((one) => [...one.afterEach, ...one.after])]).catch(() => undefined);
  }
}
