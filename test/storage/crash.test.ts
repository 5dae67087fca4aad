import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileId } from '../conformance/store.ts';
import { FILE_IDS, operationOf } from './crash-writer.ts';
import { DiskFixture, temporaryFolder } from './stores.ts';

/** @returns the contents after the first `seq` operations of the file */
function modelOf(file: number, seq: number): Buffer {
  let model = Buffer.alloc(0);
  for (let at = 1; at <= seq; at++) {
    const operation = operationOf(file, at);
    const size =
      operation.kind === 'truncate'
        ? operation.sizeBytes
        : Math.max(model.length, operation.offset + operation.bytes.length);
    const next = Buffer.alloc(size);
    model.copy(next);
    if (operation.kind === 'write') next.set(operation.bytes, operation.offset);
    model = next;
  }
  return model;
}

/**
 * Goal: what was applied is there after kill -9 at any moment, and the state is one that was.
 * Method: a process writes and is killed, five times over the same folder; each time the folder is
 * opened and every file compared with the model at the sequence number that it claims.
 */
test('kill -9 in the middle of applies loses nothing that was applied', { timeout: 60_000 }, async () => {
  const folder = temporaryFolder();
  const writer = path.resolve(import.meta.dirname, 'crash-writer.ts');
  try {
    for (let round = 1; round <= 5; round++) {
      const child = spawn(process.execPath, [writer, folder], { stdio: ['ignore', 'pipe', 'inherit'] });
      const applied = new Map<number, number>();
      let rest = '';
      let lines = 0;
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        const parts = (rest + text).split('\n');
        rest = parts.pop() ?? '';
        for (const line of parts) {
          const [file, seq] = line.split(' ').map(Number) as [number, number];
          applied.set(file, Math.max(applied.get(file) ?? 0, seq));
          if (++lines === 150 * round) child.kill('SIGKILL');
        }
      });
      await once(child, 'close');
      assert.ok(lines >= 150 * round, 'the writer wrote until it was killed');
      const fixture = await DiskFixture.make({}, folder);
      for (const id of FILE_IDS) {
        const seq = fixture.store.record(fileId(id))?.seq ?? 0;
        assert.ok(seq >= (applied.get(id) ?? 0), `File ${id} is at ${seq}, ${applied.get(id)} was applied`);
        const contents = await fixture.store.read(fileId(id), 0, 1_000_000);
        assert.deepEqual(Buffer.from(contents), modelOf(id, seq), `File ${id} at ${seq} in round ${round}`);
        assert.equal(fixture.store.isSuspect(fileId(id)), false, 'a killed process is no loss of power');
      }
      await fixture.close();
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
});
