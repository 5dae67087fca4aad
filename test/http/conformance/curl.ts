import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Why curl cannot be tested; false if it can. */
export const curlMissing = spawnSync('curl', ['--version']).status === 0 ? false : 'curl is not installed';

/** Typical commands work as users expect, at any server. */
export async function curlWorks(servers: readonly string[]): Promise<void> {
  const [first = '', second = '', third = ''] = servers;
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-curl-'));
  const curl = async (...words: string[]): Promise<string> =>
    (await run('curl', ['--silent', '--show-error', '--fail', ...words], { cwd: folder })).stdout;
  try {
    const bytes = randomBytes(2_000_000);
    writeFileSync(join(folder, 'report.bin'), bytes);
    const isBack = (name: string): boolean => readFileSync(join(folder, name)).equals(bytes);
    // If the URL ends with a slash, curl appends the name of the file.
    await curl('-T', 'report.bin', `${first}/v1/files/main/`);
    await curl('-o', 'back.bin', `${second}/v1/files/main/report.bin`);
    assert.ok(isBack('back.bin'));
    await curl('-T', 'report.bin', `${second}/v1/files/main/other.bin`);
    await curl('-r', '0-999999', '-o', 'half.bin', `${third}/v1/files/main/other.bin`);
    await curl('-C', '-', '-o', 'half.bin', `${first}/v1/files/main/other.bin`);
    assert.ok(isBack('half.bin'), 'An interrupted download continues');
    await curl('-F', 'file=@report.bin;filename=form.bin', `${third}/v1/files/main/`);
    await curl('-o', 'form.bin', `${first}/v1/files/main/form.bin`);
    assert.ok(isBack('form.bin'));
    await curl('-X', 'PATCH', '--data-binary', 'one more line', `${first}/v1/files/main/form.bin?append`);
    const listing = await curl('--compressed', `${second}/v1/files/main/`);
    assert.match(listing, /"name":"form\.bin","kind":"file","size":2000013/);
    await curl('-X', 'DELETE', `${third}/v1/files/main/form.bin`);
    const refused = await curl(
      '-z',
      'report.bin',
      '-o',
      'none',
      '-w',
      '%{http_code}',
      `${first}/v1/files/main/report.bin`,
    );
    assert.match(refused, /^(200|304)$/);
    await assert.rejects(curl(`${first}/v1/files/main/form.bin`), /404/);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
