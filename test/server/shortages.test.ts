import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { ownDescriptors, Shortages } from '../../server/process/shortages.ts';
import { patientWorld } from '../patient-world.ts';

test('exhausted connections and descriptors are reported once, until there are enough again', async () => {
  let nowMs = 0;
  const connections = { count: 10, max: 100, refused: 0 };
  let descriptors: { open: number; max: number } | null = { open: 50, max: 1_000 };
  const changes: (readonly string[])[] = [];
  const shortages = new Shortages({
    world: patientWorld,
    log: pino({ level: 'silent' }),
    connections: () => connections,
    descriptors: async () => descriptors,
    changed: (current) => changes.push(current),
    nowMs: () => nowMs,
  });
  const after = async (change: () => void): Promise<readonly string[]> => {
    change();
    await shortages.check();
    return shortages.current;
  };
  assert.deepEqual(await after(() => undefined), []);
  assert.match(
    (await after(() => Object.assign(connections, { count: 90 }))).join(),
    /nearly all of its 100 connections/,
  );
  assert.equal((await after(() => Object.assign(connections, { count: 85 }))).length, 1, 'not yet enough');
  assert.deepEqual(await after(() => Object.assign(connections, { count: 79 })), []);
  const open = await after(() => {
    descriptors = { open: 900, max: 1_000 };
  });
  assert.match(open.join(), /nearly all of its 1000 file descriptors/);
  await after(() => {
    descriptors = null;
  });
  assert.match((await after(() => Object.assign(connections, { refused: 1 }))).join(), /refuses connections/);
  nowMs = 59_999;
  assert.equal((await after(() => undefined)).length, 1);
  nowMs = 60_000;
  assert.deepEqual(await after(() => undefined), []);
  assert.equal(changes.length, 6);
});

test("the number of this process's open descriptors is known", async () => {
  const found = await ownDescriptors();
  if (process.platform !== 'linux') return;
  assert.ok(found !== null && found.open > 3 && found.max >= found.open, JSON.stringify(found));
});
