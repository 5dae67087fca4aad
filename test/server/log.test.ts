import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { test } from 'node:test';
import { AssertionFailure } from '../../base/assert.ts';
import type { ServerId } from '../../base/ids.ts';
import { createLogger, endOnFatal, logDestination } from '../../server/log.ts';

class Process extends EventEmitter {
  readonly exits: number[] = [];

  exit(code: number): void {
    this.exits.push(code);
  }
}

test('a failed assertion that nobody caught is logged and ends the process, once', () => {
  const lines: string[] = [];
  const config = { id: 's1' as ServerId, cluster: 'c', logLevel: 'info' } as const;
  const log = createLogger(config, { write: (line) => void lines.push(line) });
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

test('a log whose disk is full throws at nobody, and does not wait for room', () => {
  const fd = openSync('/dev/full', 'w');
  try {
    const config = { id: 's1' as ServerId, cluster: 'c', logLevel: 'info' } as const;
    const log = createLogger(config, logDestination(fd));
    log.error('a disk refused');
    log.fatal('server ends');
  } finally {
    closeSync(fd);
  }
});
