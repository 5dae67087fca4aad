import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import type { World } from '../../base/world.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import { readConfig } from '../../server/config/config.ts';
import { Server } from '../../server/server.ts';
import { patientWorld } from '../patient-world.ts';

test("tasks that are due during a server's start, as on a busy machine, find all that they need", async (t) => {
  const [own, other] = await freePorts(2);
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-start-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const peers = ['--peer', `s1=127.0.0.1:${own}`, '--peer', `s2=127.0.0.1:${other}`];
  const timing = ['--lease', '1s', '--clock-skew', '100ms'];
  const config = readConfig(['--id', 's1', ...peers, '--data', folder, ...timing], {}, () => '');
  let looks = 0;
  const hurried: World = {
    ...patientWorld,
    every: (_periodMs, run) =>
      patientWorld.every(1, () => {
        looks++;
        run();
      }),
  };
  const failures: unknown[] = [];
  const server = await Server.start(config, {
    world: hurried,
    log: pino({ level: 'silent' }),
    fatal: (error) => void failures.push(error),
  });
  assert.ok(looks > 0);
  await server.stop();
  assert.deepEqual(failures, []);
});
