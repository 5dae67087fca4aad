import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { AssertionFailure } from '../../base/assert.ts';
import type { ServerId } from '../../base/ids.ts';
import { createLogger, endOnFatal, logDestination } from '../../server/telemetry/log.ts';
import { patientWorld } from '../patient-world.ts';

class Process extends EventEmitter {
  readonly exits: number[] = [];

  exit(code: number): void {
    this.exits.push(code);
  }
}

test('a failed assertion that is not caught is logged and ends the process, once', () => {
  const lines: string[] = [];
  const config = { id: 's1' as ServerId, cluster: 'c', logLevel: 'info' } as const;
  const log = createLogger(config, patientWorld, { write: (line) => void lines.push(line) });
  const mortal = new Process();
  const fatal = endOnFatal(log, mortal);
  log.debug('not at this level');
  mortal.emit('uncaughtException', new AssertionFailure('A promise never moves back'));
  mortal.emit('unhandledRejection', 'another');
  fatal(new Error('a third'));
  assert.deepEqual(mortal.exits, [1]);
  assert.equal(lines.length, 1);
  const line = JSON.parse(lines[0] ?? '');
  assert.equal(line.level, 'fatal');
  assert.equal(line.server, 's1');
  assert.equal(line.cluster, 'c');
  assert.equal(line.err.message, 'A promise never moves back');
  assert.match(line.err.stack, /log\.test\.ts/);
});

test('a log whose disk is full throws no error, and does not wait for free space', () => {
  const fd = openSync('/dev/full', 'w');
  try {
    const config = { id: 's1' as ServerId, cluster: 'c', logLevel: 'info' } as const;
    const log = createLogger(config, patientWorld, logDestination(fd, patientWorld));
    log.error('a disk refused');
    log.fatal('server ends');
  } finally {
    closeSync(fd);
  }
});

test('a log without a reader blocks no caller, and later says how much of it was lost', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-log-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
  const writer = openSync(pipe, 'w');
  t.after(() => [reader, writer].forEach(closeSync));
  const log = createLogger(
    { id: 's1' as ServerId, cluster: 'c', logLevel: 'info' },
    patientWorld,
    logDestination(writer, patientWorld),
  );
  const COUNT = 5_000;
  for (let line = 0; line < COUNT; line++) log.info({ line }, 'a line of some length that is not read');
  const before = drain(reader);
  log.info({ line: COUNT }, 'read again');
  const [told, last] = drain(reader).slice(-2);
  assert.equal(last?.line, COUNT);
  // One line may have been cut off.
  assert.ok(Number(told?.lines) > 0 && before.length + Number(told?.lines) >= COUNT - 1);
  assert.ok(before.length + Number(told?.lines) <= COUNT);
});

/** @returns the whole lines that are in a pipe */
function drain(reader: number): { readonly line?: number; readonly lines?: number }[] {
  const pieces: Buffer[] = [];
  const piece = Buffer.alloc(65_536);
  for (;;) {
    try {
      const count = readSync(reader, piece);
      if (count === 0) break;
      pieces.push(Buffer.from(piece.subarray(0, count)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EAGAIN') break;
      throw error;
    }
  }
  const lines = Buffer.concat(pieces).toString().split('\n').slice(0, -1);
  return lines.filter((line) => line.startsWith('{') && line.endsWith('}')).map((line) => JSON.parse(line));
}
