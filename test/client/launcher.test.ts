import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { freePorts } from '../../client/dev/free-ports.ts';
import { InVain, until } from '../cluster/real-cluster.ts';

const LAUNCHER = fileURLToPath(new URL('../../bin/leasehold.js', import.meta.url));
const OLD_NODE = new URL('old-node.ts', import.meta.url).href;
const LISTENS = 'server listens';
const ENDS = 'releasing leases';

const skip = hasNodeOfItsOwn() ? false : 'the package of Node is not installed';

function hasNodeOfItsOwn(): boolean {
  try {
    createRequire(import.meta.url).resolve(`node-linux-${process.arch}/package.json`);
    return true;
  } catch {
    return false;
  }
}

function isRunning(pid: number): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return false;
  return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
}

/** A launcher of an old Node, and the server that it has started. */
describe('a server that a launcher has started', { skip }, () => {
  let folder: string;
  let launcher: ChildProcess;
  let server: number;
  let log = '';

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'leasehold-launcher-'));
    const [port] = await freePorts(1);
    log = '';
    const options = ['--id', 's1', '--listen', `127.0.0.1:${port}`, '--peer', `s1=127.0.0.1:${port}`];
    launcher = spawn(process.execPath, [LAUNCHER, 'server', ...options, '--data', join(folder, 'data')], {
      env: { ...process.env, NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import=${OLD_NODE}` },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    launcher.stderr?.setEncoding('utf8').on('data', (text: string) => {
      log += text;
    });
    await said(LISTENS);
    const { pid } = JSON.parse(log.slice(0, log.indexOf('\n'))) as { pid: number };
    server = pid;
    assert.notEqual(server, launcher.pid, 'The server is a separate process');
  });

  afterEach(() => {
    launcher.kill('SIGKILL');
    if (isRunning(server)) process.kill(server, 'SIGKILL');
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  });

  function said(words: string): Promise<void> {
    return until(
      `it says "${words}"`,
      async () => {
        if (log.includes(words)) return true;
        if (launcher.exitCode !== null || launcher.signalCode !== null) throw new InVain(log);
        return false;
      },
      60_000,
    );
  }

  test('ends in good order when its launcher is killed with -9', async () => {
    launcher.kill('SIGKILL');
    await until('the server has ended', async () => !isRunning(server), 20_000);
    assert.ok(log.includes(ENDS), log);
  });

  test('ends with code 0 when a service manager signals both of them, twice', async () => {
    const ended = once(launcher, 'exit');
    for (let time = 0; time < 2; time++) {
      if (isRunning(server)) process.kill(server, 'SIGTERM');
      launcher.kill('SIGTERM');
      await said(ENDS);
    }
    assert.deepEqual(await ended, [0, null]);
    assert.ok(log.includes(ENDS), log);
  });
});
