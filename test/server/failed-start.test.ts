import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { freePorts } from '../../client/dev/free-ports.ts';
import { readConfig } from '../../server/config/config.ts';
import { Server } from '../../server/server.ts';
import { patientWorld } from '../patient-world.ts';

test('a start that fails leaves the database to the next one in this process', async () => {
  const [port] = await freePorts(1);
  const data = mkdtempSync(join(tmpdir(), 'leasehold-failed-start-'));
  const own = ['--id', 's1', '--peer', `s1=127.0.0.1:${port}`, '--data', data, '--lease', '1s'];
  const config = readConfig([...own, '--clock-skew', '100ms'], {}, () => '');
  const start = (): Promise<Server> =>
    Server.start(config, {
      world: patientWorld,
      log: pino({ level: 'silent' }),
      fatal: (error) => {
        throw error;
      },
    });
  try {
    await (await start()).stop();
    // Blocks a file that the server writes again at each start, as a full disk does.
    const inTheWay = join(data, 'departed.new');
    mkdirSync(inTheWay);
    await assert.rejects(start(), { code: 'EISDIR' });
    rmdirSync(inTheWay);
    await (await start()).stop();
  } finally {
    rmSync(data, { recursive: true, force: true });
  }
});
