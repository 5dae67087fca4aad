import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { fileId } from '../conformance/store.ts';
import { isLong } from '../long.ts';
import { FILE_IDS, modelOf, writeUntilKilled } from './crash-writer.ts';
import { DiskFixture, temporaryFolder } from './stores.ts';

const ROUNDS = isLong ? 5 : 2;

/**
 * Goal: applied operations survive kill -9 at any moment, and the state is one that existed.
 * Method: a process writes and is killed, several times over the same folder; each time the folder is opened and every
 * file compared with the model at the sequence number that it reports.
 */
test('kill -9 in the middle of applies loses no applied operation', { timeout: 60_000 }, async () => {
  const folder = temporaryFolder();
  try {
    for (let round = 1; round <= ROUNDS; round++) {
      const { lines, applied } = await writeUntilKilled(folder, 150 * round);
      assert.ok(lines >= 150 * round, 'the writer wrote until it was killed');
      const fixture = await DiskFixture.make({}, folder);
      for (const id of FILE_IDS) {
        const seq = fixture.store.record(fileId(id))?.seq ?? 0;
        assert.ok(seq >= (applied.get(id) ?? 0), `File ${id} is at ${seq}, ${applied.get(id)} was applied`);
        const contents = await fixture.store.read(fileId(id), 0, 1_000_000);
        assert.deepEqual(Buffer.from(contents), modelOf(id, seq), `File ${id} at ${seq} in round ${round}`);
        assert.equal(fixture.store.trust(fileId(id)), 'intact', 'a killed process is no loss of power');
      }
      await fixture.close();
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
});
