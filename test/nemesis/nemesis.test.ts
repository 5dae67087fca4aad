import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { historyCheck } from '../history/checker.ts';
import { historyParse } from '../history/operation.ts';
import { isLong } from '../long.ts';

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));

/**
 * Goal: what clients of five real servers see is linearizable while servers are killed, stopped and disconnected from
 * each other, and their clocks are wrong.
 * Method: a short run of `npm run nemesis`, which also fails if nothing happened. Without network namespaces it
 * reports that, and runs without partitions. A failure names its seed, and has the last lines of the servers' logs.
 */
test('clients see one history during faults of the servers', { timeout: 600_000 }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-history-'));
  try {
    const out = join(folder, 'history.jsonl');
    const args = ['--out', out, '--for', isLong ? '30s' : '15s', '--faults', 'kill,stop,partition,skew'];
    const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    const [code] = (await once(child, 'exit')) as [number | null];
    for (const line of said.trimEnd().split('\n')) t.diagnostic(line);
    assert.equal(code, 0, said);
    // The history in the file has the same verdict.
    const verdict = historyCheck(historyParse(readFileSync(out, 'utf8')));
    assert.deepEqual([verdict.violations, verdict.undecided], [[], []]);
    assert.ok(verdict.operations > 300, `${verdict.operations} operations`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
